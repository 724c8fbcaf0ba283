"""The engines alone against libtorch's CPU kernels: products, attention, convolution, reordering.

python -m benchmarks.engines [matmul attention convolution permute] [--dtype f32 bf16] [--rounds 5]

For each line: own time, libtorch's, the ratio (below 1 the engine is faster), and what the engine
reaches of the machine's limit measured in the same run: multiply-adds on registers, or for few rows
and copies a plain copy's bandwidth. Both contenders alternate; times are minima.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from benchmarks.measure import alternate, machine
from torch_neuronx import _C

kernels = _C.kernels
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass
class Case:
    label: str
    own: Callable[[], object]
    peer: Callable[[], object]
    work: float  # floating-point operations, or bytes
    limit: str  # "flops" or "bytes"


def strides(tensor: torch.Tensor, rank: int) -> list[int]:
    """Of the last dimensions, with zeros in front; of convolutions' tensors after the first two."""
    own = list(tensor.stride())
    return own[:2] + [0] * (rank - len(own)) + own[2:]


MATMULS = [
    # LLM decode and prefill: M, N, K
    *[(m, n, k) for m in (1, 2, 4, 8, 16) for n, k in ((3072, 3072), (8192, 3072), (3072, 8192))],
    *[(m, n, k) for m in (32, 64, 128) for n, k in ((3072, 3072), (512, 512))],
    # DiT
    *[(m, n, k) for m in (256, 768, 1024, 4096) for n, k in ((3072, 3072), (1024, 1024))],
    (768, 9216, 3072),
    (768, 3072, 9216),
    # UNet and attention
    *[(m, n, k) for m, n, k in ((4096, 320, 320), (1024, 640, 640), (256, 1280, 1280))],
    *[(m, n, k) for m, n, k in ((4096, 2560, 320), (77, 768, 768), (77, 1280, 768))],
    *[(m, n, k) for m, n, k in ((100, 100, 100), (33, 65, 129), (1000, 1000, 7), (7, 1000, 1000))],
]


def matmul(dtype: torch.dtype) -> Iterator[Case]:
    for m, n, k in MATMULS:
        a = torch.randn(m, k).to(dtype)
        w = torch.randn(n, k).to(dtype)  # as torch.nn.Linear has it
        out = torch.empty(m, n, dtype=dtype)
        peer_out = torch.empty(m, n, dtype=dtype)

        def own(a=a, w=w, out=out, sizes=(1, m, n, k)):
            kernels.gemm(
                NAMES[dtype],
                list(sizes),
                a.data_ptr(),
                [0, *a.stride()],
                w.data_ptr(),
                [0, *w.t().stride()],
                out.data_ptr(),
                [0, *out.stride()],
            )

        def peer(a=a, w=w, out=peer_out):
            torch.mm(a, w.t(), out=out)

        label = f"{m} x {n} x {k}"
        if m <= 16:
            yield Case(label, own, peer, w.nbytes, "bytes")
        else:
            yield Case(label, own, peer, 2.0 * m * n * k, "flops")


def attention(dtype: torch.dtype) -> Iterator[Case]:
    for b, h, n, s, d in ((1, 24, 768, 768, 128), (1, 24, 4608, 4608, 128), (2, 8, 1024, 77, 40),
                          (1, 32, 1, 2048, 128), (2, 10, 1024, 1024, 64)):  # fmt: skip
        q, k, v = torch.randn(b, h, n, d), torch.randn(b, h, s, d), torch.randn(b, h, s, d)
        q, k, v = (t.to(dtype) for t in (q, k, v))
        out = torch.empty_like(q)

        def own(tensors=(q, k, v, out), sizes=(b, h, h, n, s, d, d)):
            kernels.attention(
                NAMES[dtype],
                list(sizes),
                [t.data_ptr() for t in tensors],
                [list(t.stride()) for t in tensors],
                scale=sizes[5] ** -0.5,
            )

        def peer(q=q, k=k, v=v):
            torch.nn.functional.scaled_dot_product_attention(q, k, v)

        label = f"{b}, {h} heads, {n} x {s}, {d}"
        if n == 1:
            yield Case(label, own, peer, k.nbytes + v.nbytes, "bytes")
        else:
            yield Case(label, own, peer, 4.0 * b * h * n * s * d, "flops")


CONVOLUTIONS = [
    # name, input, weight, stride, padding, groups
    ("VAE 512, 32 x 32", (1, 512, 32, 32), (512, 512, 3, 3), 1, 1, 1),
    ("VAE 512, 64 x 64", (1, 512, 64, 64), (512, 512, 3, 3), 1, 1, 1),
    ("VAE 256, 128 x 128", (1, 256, 128, 128), (256, 256, 3, 3), 1, 1, 1),
    ("VAE 128, 256 x 256", (1, 128, 256, 256), (128, 128, 3, 3), 1, 1, 1),
    ("VAE 128 to 3", (1, 128, 256, 256), (3, 128, 3, 3), 1, 1, 1),
    ("UNet 320, 32 x 32", (2, 320, 32, 32), (320, 320, 3, 3), 1, 1, 1),
    ("UNet 1280, 8 x 8", (2, 1280, 8, 8), (1280, 1280, 3, 3), 1, 1, 1),
    ("small UNet 32, 16 x 16", (1, 32, 16, 16), (64, 32, 3, 3), 1, 1, 1),
    ("down 320, stride 2", (2, 320, 32, 32), (320, 320, 3, 3), 2, 1, 1),
    ("patches of 16", (1, 3, 512, 512), (768, 3, 16, 16), 16, 0, 1),
    ("patches of 2", (1, 16, 64, 64), (1536, 16, 2, 2), 2, 0, 1),
    ("1 x 1, 512", (1, 512, 64, 64), (512, 512, 1, 1), 1, 0, 1),
    ("depthwise 256", (1, 256, 64, 64), (256, 1, 3, 3), 1, 1, 256),
]


def convolution(dtype: torch.dtype) -> Iterator[Case]:
    for name, x_shape, w_shape, stride, padding, groups in CONVOLUTIONS:
        for last in (False, True):
            layout = torch.channels_last if last else torch.contiguous_format
            x = torch.randn(x_shape).to(dtype).contiguous(memory_format=layout)
            w = torch.randn(w_shape).to(dtype)
            window = ([stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups)
            out = torch.convolution(x, w, None, *window).contiguous(memory_format=layout)

            def own(x=x, w=w, out=out, stride=stride, padding=padding, groups=groups):
                kernels.convolution(
                    NAMES[dtype],
                    [x.shape[0], groups, x.shape[1], out.shape[1]],
                    [
                        [1, *x.shape[2:]],
                        [1, *out.shape[2:]],
                        [1, *w.shape[2:]],
                        [1, stride, stride],
                        [0, padding, padding],
                        [1, 1, 1],
                    ],
                    False,
                    [x.data_ptr(), w.data_ptr(), out.data_ptr()],
                    [strides(t, 5) for t in (x, w, out)],
                )

            def peer(x=x, w=w, window=window):
                torch.convolution(x, w, None, *window)

            label = f"{name}, {'NHWC' if last else 'NCHW'}"
            if groups > 1:
                yield Case(label, own, peer, x.nbytes + out.nbytes, "bytes")
            else:
                yield Case(label, own, peer, 2.0 * out.numel() * w[0].numel(), "flops")


def permute(dtype: torch.dtype) -> Iterator[Case]:
    for shape, order in (((1024, 3072), (1, 0)), ((1, 24, 768, 128), (0, 2, 1, 3)),
                         ((1, 256, 128, 128), (0, 2, 3, 1)), ((1, 128, 128, 256), (0, 3, 1, 2)),
                         ((24, 768, 128), (0, 2, 1))):  # fmt: skip
        source = torch.randn(shape).to(dtype).permute(order)
        out, peer_out = (torch.empty(source.shape, dtype=dtype) for _ in range(2))

        def own(source=source, out=out):
            assert kernels.permute(
                source.element_size(),
                list(source.shape),
                source.data_ptr(),
                list(source.stride()),
                out.data_ptr(),
                list(out.stride()),
            )

        def peer(source=source, out=peer_out):
            out.copy_(source)

        yield Case(f"{shape} as {order}", own, peer, 2.0 * source.nbytes, "bytes")


def bandwidth() -> float:
    """Bytes per second that a copy too large for the caches reads and writes."""
    source = torch.randn(1 << 26)
    out = torch.empty_like(source)
    least = alternate({"copy": lambda: out.copy_(source)}, 5)["copy"].least
    return 2.0 * source.nbytes / least


ENGINES = {
    "matmul": matmul,
    "attention": attention,
    "convolution": convolution,
    "permute": permute,
}


def report(name: str, dtype: torch.dtype, rounds: int, copy_rate: float) -> None:
    peak = kernels.measure_peak(NAMES[dtype], 1.0)
    print(f"\n### {name}, {NAMES[dtype]}: peak {peak / 1e9:.0f} GFLOP/s\n")
    print("| case | own, ms | libtorch, ms | own / libtorch | own rate | of the limit |")
    print("|---|---|---|---|---|---|")
    ratios = []
    for case in ENGINES[name](dtype):
        seconds = alternate({"own": case.own}, 1)["own"].least
        calls = max(1, min(200, int(0.02 / seconds)))
        results = alternate({"own": case.own, "libtorch": case.peer}, rounds, calls)
        own, peer = results["own"].least, results["libtorch"].least
        ratios.append(own / peer)
        rate = case.work / own
        limit = peak if case.limit == "flops" else copy_rate
        unit = "GFLOP/s" if case.limit == "flops" else "GB/s"
        print(
            f"| {case.label} | {own * 1e3:.3f} | {peer * 1e3:.3f} | {own / peer:.2f} | "
            f"{rate / 1e9:.0f} {unit} | {rate / limit:.0%} |",
            flush=True,
        )
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    slower = sum(ratio > 1.05 for ratio in ratios)
    print(f"\ngeometric mean of the ratios {mean:.2f}; {slower} of {len(ratios)} above 1.05")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", choices=[*ENGINES, []], default=list(ENGINES))
    parser.add_argument("--dtype", nargs="*", choices=DTYPES, default=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(kernels.num_threads())
    print(machine())
    copy_rate = bandwidth()
    print(f"copy {copy_rate / 1e9:.0f} GB/s; {kernels.num_threads()} threads in the pool")
    with torch.inference_mode():
        for name in args.engines:
            for dtype in args.dtype:
                report(name, DTYPES[dtype], args.rounds, copy_rate)


if __name__ == "__main__":
    main()
