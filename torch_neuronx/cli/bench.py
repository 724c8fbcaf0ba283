"""``torch-neuronx bench``: this machine's device against PyTorch's CPU device."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from torch_neuronx.cli import terminal

Work = Callable[[], object]

_CONTENDERS = ("CPU eager", "neuron eager", "neuron compiled")


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure the device against PyTorch's CPU device (about two minutes)",
        description="Measures the device against PyTorch's CPU device on this machine. The "
        "contenders run in turn, so that a busy machine slows all of them; shown is the least time "
        "of one call.",
    )
    parser.add_argument(
        "--seconds", type=float, default=110, help="time to spend measuring (default: %(default)s)"
    )
    parser.add_argument(
        "-k", dest="only", default="", help="only the work whose name has this text"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    names = [name for name in _WORKS if arguments.only in name]
    if not names:
        raise RuntimeError(f"no work's name has '{arguments.only}': there are {', '.join(_WORKS)}")
    if not arguments.json:
        print(_machine())
    rows, results = [], {}
    with torch.no_grad():
        for name in names:
            times = _measure(_WORKS[name](), arguments.seconds / len(names))
            results[name] = times
            rows.append(_row(name, times))
            if sys.stderr.isatty():
                print(f"\r{len(rows)} of {len(names)}", end="\r", file=sys.stderr, flush=True)
    if arguments.json:
        json.dump({"machine": _machine(), "milliseconds": results}, sys.stdout, indent=2)
        print()
        return 0
    header = ["WORK", *(f"{name}, ms" for name in _CONTENDERS), "BEST / CPU"]
    print(terminal.table(header, rows, right=(1, 2, 3, 4)))
    ratios = [_best(times) / times["CPU eager"] for times in results.values()]
    mean = statistics.geometric_mean(ratios)
    print(f"geometric mean of the device's time over the CPU's: {mean:.2f}")
    return 0


def _best(times: dict[str, float]) -> float:
    return min(value for name, value in times.items() if name != "CPU eager")


def _row(name: str, times: dict[str, float]) -> list[str]:
    cells = [f"{times[n]:.2f}" if n in times else "" for n in _CONTENDERS]
    ratio = _best(times) / times["CPU eager"]
    colour = "green" if ratio <= 1 else "yellow"
    return [name, *cells, terminal.paint(f"{ratio:.2f}", colour)]


def _machine() -> str:
    isa = torch.neuron.get_device_properties(0)
    return (
        f"{isa.name}, kernels {isa.instruction_set}, {isa.num_threads} threads; torch "
        f"{torch.__version__} with {torch.get_num_threads()} threads"
    )


def _measure(contenders: dict[str, Work], seconds: float) -> dict[str, float]:
    """Least milliseconds of one call each, from as many alternating rounds as the time allows."""
    for work in contenders.values():  # compiles, allocates, warms up
        work()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    deadline = time.perf_counter() + seconds
    while len(times["CPU eager"]) < 3 or (
        time.perf_counter() < deadline and len(times["CPU eager"]) < 200
    ):
        for name, work in contenders.items():
            start = time.perf_counter()
            work()
            times[name].append(time.perf_counter() - start)
    return {name: min(found) * 1e3 for name, found in times.items()}


def _synchronised(function: Callable[..., Any], inputs: list[torch.Tensor]) -> Work:
    def work() -> None:
        function(*inputs)
        torch.neuron.synchronize()

    return work


def _function(
    function: Callable[..., Any],
    dtype: torch.dtype,
    *shapes: tuple[int, ...],
    compiled: bool = False,
) -> Callable[[], dict[str, Work]]:
    def make() -> dict[str, Work]:
        inputs = [torch.randn(shape, dtype=dtype) for shape in shapes]
        on_device = [x.to("neuron") for x in inputs]
        out: dict[str, Work] = {
            "CPU eager": lambda: function(*inputs),
            "neuron eager": _synchronised(function, on_device),
        }
        if compiled:
            fast = torch.compile(function, backend="neuron")
            out["neuron compiled"] = _synchronised(fast, on_device)
        return out

    return make


class _Block(torch.nn.Module):
    """A transformer block of 12 heads of 64: attention, then a feed-forward layer."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


def _block(dtype: torch.dtype) -> Callable[[], dict[str, Work]]:
    def make() -> dict[str, Work]:
        torch.manual_seed(0)
        cpu = _Block().to(dtype).eval()
        device = _Block().to(dtype).eval().to("neuron")
        x = torch.randn(1, 512, 768, dtype=dtype)
        fast = torch.compile(device, backend="neuron", fullgraph=True)
        return {
            "CPU eager": lambda: cpu(x),
            "neuron eager": _synchronised(device, [x.to("neuron")]),
            "neuron compiled": _synchronised(fast, [x.to("neuron")]),
        }

    return make


def _norm_and_activation(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return functional.gelu(functional.layer_norm(x, x.shape[-1:]) * (1 + y) + x)


def _works() -> dict[str, Callable[[], dict[str, Work]]]:
    out: dict[str, Callable[[], dict[str, Work]]] = {}
    for label, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        heads = (1, 12, 1024, 64)
        out |= {
            f"matmul 512 x 2048 x 2048 {label}": _function(
                torch.matmul, dtype, (512, 2048), (2048, 2048)
            ),
            f"attention 12 x 1024 x 64 {label}": _function(
                functional.scaled_dot_product_attention, dtype, heads, heads, heads
            ),
            f"convolution 3 x 3, 128 channels, 64 x 64 {label}": _function(
                lambda x, w: functional.conv2d(x, w, padding=1),
                dtype,
                (1, 128, 64, 64),
                (128, 128, 3, 3),
            ),
            f"softmax 1024 x 3072 {label}": _function(
                lambda x: torch.softmax(x, -1), dtype, (1024, 3072)
            ),
            f"norm, scale, gelu, add 1024 x 3072 {label}": _function(
                _norm_and_activation, dtype, (1024, 3072), (3072,), compiled=True
            ),
            f"transformer block, 512 tokens {label}": _block(dtype),
        }
    return out


_WORKS = _works()
