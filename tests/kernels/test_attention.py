"""Attention against float64, on every instruction set of this CPU.

Tolerance. A score's error e_s is at most gamma_(d+2) |q||k| scale plus the roundings of bias and
shift. Each probability then has the relative error 2 e_s + (a few + kv_len) u, u = 2^-24, and with
bf16 probabilities 2^-8 more. The output's error is that times sum_j p_j |v_j|, and one rounding to
its dtype.
"""

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_neuronx import _C

kernels = _C.kernels
ISAS = kernels.available_isas()
NAMES = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float64: "f64",
    torch.bool: "b8",
}
HALVES = [torch.bfloat16, torch.float16]


def attention(q, k, v, out=None, bias=None, causal=False, scale=None, lse=None, isa=""):
    if out is None:
        out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=q.dtype)
    batch, heads, q_len, head_dim = q.shape
    if bias is not None:
        bias = bias.expand(batch, heads, q_len, k.shape[2])
    kernels.attention(
        NAMES[q.dtype],
        [batch, heads, k.shape[1], q_len, k.shape[2], head_dim, v.shape[3]],
        [t.data_ptr() for t in (q, k, v, out)],
        [list(t.stride()) for t in (q, k, v, out)],
        causal,
        head_dim**-0.5 if scale is None else scale,
        0 if bias is None else bias.data_ptr(),
        "b8" if bias is None else NAMES[bias.dtype],
        [0] * 4 if bias is None else list(bias.stride()),
        0 if lse is None else lse.data_ptr(),
        [0] * 3 if lse is None else list(lse.stride()),
        isa,
    )
    return out


def reference(q, k, v, bias=None, causal=False, scale=None):
    """In float64: output, log-sum-exp, and the bound on the error of a computation in f32."""
    group = q.shape[1] // k.shape[1]
    q = q.double()
    k, v = (t.double().repeat_interleave(group, 1) for t in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.mT * scale
    size = (q.abs() @ k.abs().mT) * abs(scale) * (q.shape[-1] + 4)
    if bias is not None and bias.dtype == torch.bool:
        scores = scores.masked_fill(~bias, float("-inf"))
    elif bias is not None:
        scores = scores + bias.double()
        size = size + bias.double().nan_to_num(0, 0, 0).abs()
    if causal:
        scores = scores.masked_fill(
            ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), float("-inf")
        )
    if scores.shape[-1] == 0:
        zero = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64)
        return zero, torch.full(q.shape[:-1], float("-inf"), dtype=torch.float64), zero
    p = scores.softmax(-1).nan_to_num(0.0)
    size = (size + 3 * scores.nan_to_num(0, 0, 0).abs()).amax(-1, keepdim=True)
    relative = (2 * size + scores.shape[-1] + 24) * 2.0**-24
    return p @ v, scores.logsumexp(-1), relative * (p @ v.abs())


def assert_close(out, expected, bound):
    rounding = 2.0**-50 if out.dtype == torch.float64 else torch.finfo(out.dtype).eps / 2
    smallest = 2.0**-25 if out.dtype == torch.float16 else 1e-30
    limit = (bound + rounding * (expected.abs() + bound)) * 1.01 + smallest
    error = (out.double() - expected).abs()
    worst = (error - limit).max().item() if error.numel() else -1
    assert worst <= 0, f"error exceeds the bound by {worst}"


def check(q, k, v, out=None, bias=None, causal=False, scale=None, isa=""):
    lse = torch.empty(q.shape[:-1])
    out = attention(q, k, v, out, bias, causal, scale, lse, isa)
    expected, expected_lse, bound = reference(q, k, v, bias, causal, scale)
    if isa == "avx512_bf16" and q.dtype == torch.bfloat16:
        absolute = reference(q, k, v.abs(), bias, causal, scale)[0]
        bound = bound + 2.0**-8 * absolute
    assert_close(out, expected, bound)
    finite = expected_lse.isfinite()
    assert torch.equal(lse.isneginf(), expected_lse.isneginf())
    assert torch.allclose(lse[finite].double(), expected_lse[finite], rtol=1e-5, atol=1e-4)


def make(shape, dtype, layout, generator):
    """[B, H, L, E] stored so, or as [B, L, H, E] (how models have it), or with E strided."""
    b, h, length, e = shape
    if layout == "blhe":
        return (
            torch.randn(b, length, h, e, generator=generator, dtype=torch.float64)
            .to(dtype)
            .transpose(1, 2)
        )
    if layout == "strided":
        return torch.randn(b, h, e, length, generator=generator, dtype=torch.float64).to(dtype).mT
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


layouts = st.sampled_from(["bhle", "blhe", "strided"])
lengths = st.one_of(st.integers(1, 40), st.sampled_from([55, 56, 57, 64, 130, 256, 257, 300]))


def draw_bias(data, shape, generator):
    kind = data.draw(
        st.sampled_from(
            ["none", "bool", torch.float32, torch.bfloat16, torch.float16, torch.float64]
        )
    )
    if kind == "none":
        return None
    shape = [n if data.draw(st.booleans()) else 1 for n in shape]
    bias = torch.randn(shape, generator=generator)
    return bias > -0.3 if kind == "bool" else bias.to(kind)


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_shapes_masks_and_layouts(isa, data):
    dtype = data.draw(st.sampled_from([torch.float32, *HALVES, torch.float64]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    batch, kv_heads = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    heads = kv_heads * data.draw(st.integers(1, 3))
    q_len, kv_len = data.draw(lengths), data.draw(lengths)
    head_dim, v_dim = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    q = make((batch, heads, q_len, head_dim), dtype, data.draw(layouts), generator)
    k = make((batch, kv_heads, kv_len, head_dim), dtype, data.draw(layouts), generator)
    v = make((batch, kv_heads, kv_len, v_dim), dtype, data.draw(layouts), generator)
    out = make((batch, heads, q_len, v_dim), dtype, data.draw(layouts), generator)
    bias = draw_bias(data, (batch, heads, q_len, kv_len), generator)
    check(
        q,
        k,
        v,
        out,
        bias,
        data.draw(st.booleans()),
        data.draw(st.sampled_from([None, 0.25, -1.0])),
        isa,
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
@pytest.mark.parametrize(
    "heads,kv_heads,q_len,kv_len,head_dim",
    [
        (3, 3, 300, 700, 128),
        (8, 2, 1, 1500, 128),
        (2, 1, 100, 515, 256),
        (6, 6, 77, 77, 64),
        (4, 1, 4, 600, 40),
    ],
)
@pytest.mark.parametrize("causal", [False, True])
def test_models(isa, dtype, heads, kv_heads, q_len, kv_len, head_dim, causal):
    generator = torch.Generator().manual_seed(1)
    q = make((1, heads, q_len, head_dim), dtype, "blhe", generator)
    k = make((1, kv_heads, kv_len, head_dim), dtype, "blhe", generator)
    v = make((1, kv_heads, kv_len, head_dim), dtype, "blhe", generator)
    check(q, k, v, causal=causal, isa=isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES, torch.float64])
@pytest.mark.parametrize("q_len", [3, 60])
def test_masked_rows_are_zero(isa, dtype, q_len):
    q, k = torch.randn(1, 2, q_len, 16).to(dtype), torch.randn(1, 2, 600, 16).to(dtype)
    keep = torch.ones(q_len, 600, dtype=torch.bool)
    keep[1] = False
    keep[2, :550] = False  # the first block of keys holds nothing for this row
    check(q, k, k, bias=keep[None, None], isa=isa)
    check(
        q, k, k, bias=torch.zeros(q_len, 600).masked_fill(~keep, float("-inf"))[None, None], isa=isa
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES, torch.float64])
@pytest.mark.parametrize("q_len", [2, 60])
def test_no_keys_and_no_features(isa, dtype, q_len):
    q = torch.randn(1, 2, q_len, 16).to(dtype)
    bad = torch.full_like(q, float("nan"))
    assert attention(q, q[:, :, :0], q[:, :, :0], bad.clone(), isa=isa).eq(0).all()
    v = torch.randn(1, 2, 5, 16).to(dtype)
    out = attention(q[..., :0], v[..., :0], v, bad.clone(), scale=1.0, isa=isa)
    check(q[..., :0], v[..., :0], v, scale=1.0, isa=isa)
    assert out.isfinite().all()
    attention(q, v, v[..., :0], isa=isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES, torch.float64])
@pytest.mark.parametrize("q_len", [2, 60])
def test_nan_stays_in_its_row(isa, dtype, q_len):
    q, k = torch.randn(1, 1, q_len, 16).to(dtype), torch.randn(1, 1, 400, 16).to(dtype)
    q[0, 0, 1, 3] = float("nan")
    out = attention(q, k, k, isa=isa)
    assert out[0, 0, 1].isnan().all()
    assert out[0, 0, 0].isfinite().all() and out[0, 0, 2:].isfinite().all()
    # A key that the causal mask hides does not reach the rows before it.
    k[0, 0, q_len - 1, 0] = float("nan")
    out = attention(torch.ones_like(q), k, torch.ones_like(k), causal=True, isa=isa)
    assert out[0, 0, : q_len - 1].isfinite().all() and out[0, 0, q_len - 1].isnan().all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_scores(isa, dtype):
    q = (torch.randn(1, 2, 70, 32) * 100).to(dtype)
    k = (torch.randn(1, 2, 300, 32) * 100).to(dtype)
    out = attention(q, k, k, isa=isa)
    winner = (q.double() @ k.double().mT).argmax(-1)
    picked = torch.take_along_dim(k, winner[..., None], 2)
    assert out.isfinite().all()
    assert torch.equal(out, picked) or (out - picked).abs().mean() < 1


@pytest.mark.parametrize("q_len", [8, 300])
def test_bf16_is_as_near_to_the_truth_as_pytorch(q_len):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, 4, q_len, 64, generator=generator).bfloat16()
    k, v = (torch.randn(1, 4, 700, 64, generator=generator).bfloat16() for _ in range(2))
    expected = reference(q, k, v)[0]
    ours = (attention(q, k, v).double() - expected).pow(2).mean()
    theirs = (
        (torch.nn.functional.scaled_dot_product_attention(q, k, v).double() - expected)
        .pow(2)
        .mean()
    )
    assert ours <= theirs * 1.1


def test_rejects_what_it_cannot_do():
    q = torch.ones(1, 3, 2, 4)
    with pytest.raises(Exception, match="not a multiple"):
        attention(q, q[:, :2], q[:, :2])
    with pytest.raises(Exception, match="no kernel for i32"):
        kernels.attention("i32", [1] * 7, [0] * 4, [[1] * 4] * 4)


BITS = """
import hashlib, sys, torch
sys.path[:0] = {path!r}
from test_attention import attention
digest = hashlib.sha256()
for dtype in (torch.float32, torch.bfloat16):
    for heads, kv_heads, q_len, kv_len in ((3, 3, 200, 300), (4, 2, 90, 600), (8, 2, 1, 900)):
        g = torch.Generator().manual_seed(1)
        q = torch.randn(1, heads, q_len, 64, generator=g).to(dtype)
        k = torch.randn(1, kv_heads, kv_len, 64, generator=g).to(dtype)
        digest.update(attention(q, k, k, causal=True).view(torch.uint8).numpy().tobytes())
print(digest.hexdigest())
"""


def test_same_bits_with_any_number_of_threads():
    digests = set()
    for threads in ("1", "5"):
        out = subprocess.run(
            [sys.executable, "-c", BITS.format(path=[os.path.dirname(__file__), *sys.path])],
            env={**os.environ, "TORCH_NEURONX_HOST_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(out.stdout.strip())
    assert len(digests) == 1
