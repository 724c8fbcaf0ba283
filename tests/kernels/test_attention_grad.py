"""Attention's gradient and dropout against float64 autograd, on every instruction set of this CPU.

Tolerance: relative to the sums of the absolute values of what is added up, element by element.
f32: up to 300 terms, each with a few roundings and a log-sum-exp stored in f32. bf16 and f16: the
output that delta is computed from and the result are rounded to the dtype, and on AVX512-BF16
probabilities and their gradients too.
"""

import math
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
TOLERANCE = {
    torch.float64: 1e-13,
    torch.float32: 1e-5,
    torch.float16: 2.0**-10,
    torch.bfloat16: 2.0**-6,
}


def describe(q, k, v, out, bias, causal, scale, lse, isa, dropout):
    batch, heads, q_len, head_dim = q.shape
    if bias is not None:
        bias = bias.expand(batch, heads, q_len, k.shape[2])
    return {
        "dtype": NAMES[q.dtype],
        "sizes": [batch, heads, k.shape[1], q_len, k.shape[2], head_dim, v.shape[3]],
        "q_k_v_out": [t.data_ptr() for t in (q, k, v, out)],
        "strides": [list(t.stride()) for t in (q, k, v, out)],
        "causal": causal,
        "scale": scale,
        "bias": 0 if bias is None else bias.data_ptr(),
        "bias_dtype": "b8" if bias is None else NAMES[bias.dtype],
        "bias_strides": [0] * 4 if bias is None else list(bias.stride()),
        "lse": lse.data_ptr(),
        "lse_strides": list(lse.stride()),
        "isa": isa,
        "dropout": dropout,
    }


def run(q, k, v, grad, bias=None, causal=False, scale=0.3, isa="", dropout=(0.0, 0, 0)):
    """Output and gradients of the device's kernels."""
    out = torch.full((*q.shape[:-1], v.shape[-1]), float("nan"), dtype=q.dtype)
    lse = torch.full(q.shape[:-1], float("nan"))
    call = describe(q, k, v, out, bias, causal, scale, lse, isa, dropout)
    kernels.attention(**call)
    grads = [torch.full_like(t, float("nan")) for t in (q, k, v)]
    kernels.attention_grad(
        **call,
        gradients=[t.data_ptr() for t in (grad, *grads)],
        gradient_strides=[list(t.stride()) for t in (grad, *grads)],
    )
    return out, grads


def kept(dropout, shape):
    """What Philox 4x32-10 keeps: word j % 4 of counter offset + row * quads + j // 4."""
    p, seed, offset = dropout
    mask64 = (1 << 32) - 1
    quads = (shape[-1] + 3) // 4
    rows = math.prod(shape[:-1])
    counter = torch.arange(rows * quads, dtype=torch.int64) + offset
    x = [counter & mask64, counter >> 32, torch.zeros_like(counter), torch.zeros_like(counter)]
    key = [seed & mask64, seed >> 32 & mask64]

    def multiply(c, a):
        low, high = a & 0xFFFF, a >> 16
        first = c * low
        second = c * high + (first >> 16)
        return second >> 16 & mask64, (second << 16 | first & 0xFFFF) & mask64

    for _ in range(10):
        a_high, a_low = multiply(0xD2511F53, x[0])
        b_high, b_low = multiply(0xCD9E8D57, x[2])
        x = [b_high ^ x[1] ^ key[0], b_low, a_high ^ x[3] ^ key[1], a_low]
        key = [key[0] + 0x9E3779B9 & mask64, key[1] + 0xBB67AE85 & mask64]
    words = torch.stack(x, -1).view(rows, quads * 4)[:, : shape[-1]]
    return (words >= min(int(p * 2**32), 2**32 - 1)).view(shape)


def reference(q, k, v, grad, bias=None, causal=False, scale=0.3, dropout=(0.0, 0, 0)):
    """Output and gradients in float64, and for each the sum of absolute values behind it."""
    leaves = [t.detach().double().requires_grad_() for t in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    ks, vs = (t.repeat_interleave(group, 1) for t in leaves[1:])
    scores = leaves[0] @ ks.mT * scale
    hidden = torch.zeros(scores.shape, dtype=torch.bool)
    if bias is not None and bias.dtype == torch.bool:
        hidden = hidden | ~bias
    elif bias is not None:
        scores = scores + bias.double()
        hidden = hidden | (bias == float("-inf"))
    if causal:
        hidden = hidden | ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    # Rows that keep nothing give 0, with gradient 0.
    empty = hidden.all(-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~empty, float("-inf")).masked_fill(empty, 0.0)
    p = scores.softmax(-1).masked_fill(empty, 0.0)
    factor = 0.0 if dropout[0] == 1 else 1 / (1 - dropout[0])
    keep = kept(dropout, p.shape).double() * factor if dropout[0] else torch.ones(p.shape).double()
    out = p * keep @ vs
    out.backward(grad.double())
    with torch.no_grad():
        pk, up = p * keep, grad.double().abs()
        size = scale * p * (up @ vs.abs().mT * keep + (up * (pk @ vs.abs())).sum(-1, keepdim=True))
        over_group = (*k.shape[:2], group, *k.shape[2:3], -1)
        sizes = [
            pk @ vs.abs(),
            size @ ks.abs(),
            (size.mT @ leaves[0].abs()).view(over_group).sum(2),
            (pk.mT @ up).view(over_group).sum(2),
        ]
    return [out.detach(), *(t.grad for t in leaves)], sizes


def check(q, k, v, grad, isa, **options):
    out, grads = run(q, k, v, grad, isa=isa, **options)
    for got, want, size in zip([out, *grads], *reference(q, k, v, grad, **options), strict=True):
        smallest = 2.0**-24 if q.dtype == torch.float16 else 1e-30
        excess = (got.double() - want).abs() - TOLERANCE[q.dtype] * size - smallest
        assert not got.numel() or excess.max() <= 0, f"error exceeds the limit by {excess.max()}"
        assert got.isfinite().all()


def make(shape, dtype, blhe, generator):
    b, h, length, e = shape
    if blhe:
        return torch.randn(b, length, h, e, generator=generator).to(dtype).transpose(1, 2)
    return torch.randn(shape, generator=generator).to(dtype)


lengths = st.one_of(st.integers(1, 40), st.sampled_from([95, 96, 97, 112, 113, 128, 129, 300]))


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_shapes_masks_and_layouts(isa, data):
    dtype = data.draw(st.sampled_from(list(TOLERANCE)))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    batch, kv_heads = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    heads = kv_heads * data.draw(st.integers(1, 3))
    q_len, kv_len = data.draw(lengths), data.draw(lengths)
    head_dim, v_dim = data.draw(st.integers(1, 70)), data.draw(st.integers(1, 70))
    q = make((batch, heads, q_len, head_dim), dtype, data.draw(st.booleans()), generator)
    k = make((batch, kv_heads, kv_len, head_dim), dtype, data.draw(st.booleans()), generator)
    v = make((batch, kv_heads, kv_len, v_dim), dtype, data.draw(st.booleans()), generator)
    grad = make((batch, heads, q_len, v_dim), dtype, data.draw(st.booleans()), generator)
    kind = data.draw(st.sampled_from(["none", torch.bool, torch.float32, torch.bfloat16, dtype]))
    bias = None
    if kind != "none":
        shape = [n if data.draw(st.booleans()) else 1 for n in (batch, heads, q_len, kv_len)]
        bias = torch.randn(shape, generator=generator)
        bias = bias > -0.3 if kind == torch.bool else bias.to(kind)
    dropout = data.draw(st.sampled_from([(0.0, 0, 0), (0.3, 1234567890123, 77), (0.9, 5, 1 << 33)]))
    check(
        q, k, v, grad, isa, bias=bias, causal=data.draw(st.booleans()), scale=0.3, dropout=dropout
    )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_masked_rows_have_no_gradient(isa, dtype):
    q, k, grad = (torch.randn(1, 2, 30, 16).to(dtype) for _ in range(3))
    keep = torch.ones(30, 30, dtype=torch.bool)
    keep[3] = False
    check(q, k, k, grad, isa, bias=keep[None, None])
    additive = torch.zeros(30, 30).masked_fill(~keep, float("-inf"))[None, None]
    check(q, k, k, grad, isa, bias=additive)
    assert run(q, k, k, grad, bias=keep[None, None], isa=isa)[1][0][:, :, 3].eq(0).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_everything_dropped(isa, dtype):
    q, k, grad = (torch.randn(1, 1, 9, 8).to(dtype) for _ in range(3))
    out, grads = run(q, k, k, grad, isa=isa, dropout=(1.0, 3, 0))
    assert out.eq(0).all() and all(g.eq(0).all() for g in grads)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_empty(dtype):
    q, k = torch.randn(1, 2, 5, 8).to(dtype), torch.randn(1, 2, 0, 8).to(dtype)
    assert run(q, k, k, torch.ones_like(q))[1][0].eq(0).all()
    _, grads = run(k, q, q, torch.ones_like(k))
    assert grads[1].eq(0).all() and grads[2].eq(0).all()


def test_wanted_gradients_only():
    q, k, v, grad = (torch.randn(1, 2, 20, 16) for _ in range(4))
    _, expected = run(q, k, v, grad)
    out, lse = torch.empty_like(q), torch.empty(1, 2, 20)
    call = describe(q, k, v, out, None, False, 0.3, lse, "", (0.0, 0, 0))
    kernels.attention(**call)
    for wanted in range(3):
        got = torch.full_like(q, float("nan"))
        addresses = [grad.data_ptr(), 0, 0, 0]
        addresses[wanted + 1] = got.data_ptr()
        kernels.attention_grad(
            **call, gradients=addresses, gradient_strides=[list(grad.stride())] * 4
        )
        assert torch.equal(got, expected[wanted])


def test_rejects_what_it_cannot_do():
    q = torch.ones(1, 1, 2, 4)
    with pytest.raises(Exception, match="dropout 1.5 is not in"):
        run(q, q, q, q, dropout=(1.5, 0, 0))


BITS = """
import hashlib, sys, torch
sys.path[:0] = {path!r}
from test_attention_grad import run
digest = hashlib.sha256()
for dtype in (torch.float32, torch.bfloat16):
    for heads, kv_heads, q_len, kv_len in ((3, 3, 200, 300), (9, 9, 90, 140), (8, 2, 40, 900)):
        g = torch.Generator().manual_seed(1)
        q = torch.randn(1, heads, q_len, 64, generator=g).to(dtype)
        k = torch.randn(1, kv_heads, kv_len, 64, generator=g).to(dtype)
        out, grads = run(q, k, k, q, causal=True, dropout=(0.2, 7, 9))
        for t in (out, *grads):
            digest.update(t.contiguous().view(torch.uint8).numpy().tobytes())
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
