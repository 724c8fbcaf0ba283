"""The matrix product against float64, on every instruction set of this CPU.

Tolerance. The error of a sum of k products is at most gamma_k = k u / (1 - k u) times |A| |B|
(Higham, Accuracy and Stability of Numerical Algorithms, 3.1), u = 2^-24 for sums in f32. The result
is rounded once to its dtype, which adds half a unit in its last place. alpha, beta and D add two
roundings to u.
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
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
}
FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def strides(tensor):
    return [0] * (3 - tensor.dim()) + list(tensor.stride())


def gemm(a, b, c, alpha=1.0, beta=0.0, d=None, isa=""):
    kernels.gemm(
        NAMES[c.dtype],
        [c.shape[0] if c.dim() == 3 else 1, c.shape[-2], c.shape[-1], a.shape[-1]],
        a.data_ptr(),
        strides(a),
        b.data_ptr(),
        strides(b),
        c.data_ptr(),
        strides(c),
        alpha,
        beta,
        0 if d is None else d.data_ptr(),
        [0, 0, 0] if d is None else strides(d),
        isa,
    )
    return c


def make(rows, cols, dtype, layout, generator, batch=None):
    """A matrix of that layout: row, column (transposed), padded rows, or every second element."""
    lead = () if batch is None else (batch,)
    shape = (cols, rows) if layout == "column" else (rows, cols)
    if layout == "padded":
        shape = (rows, cols + 3)
    if layout == "sparse":
        shape = (2 * rows, 2 * cols)
    if dtype.is_floating_point:
        data = torch.randn(lead + shape, generator=generator, dtype=torch.float64).to(dtype)
    else:
        info = torch.iinfo(dtype)
        data = torch.randint(
            max(info.min, -(2**62)), min(info.max, 2**62), lead + shape, generator=generator
        )
        data = data.to(dtype)
    if layout == "column":
        return data.mT
    if layout == "padded":
        return data[..., :cols]
    if layout == "sparse":
        return data[..., ::2, ::2]
    return data


def tolerance(a, b, dtype, alpha=1.0, addend=None):
    unit = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    k = a.shape[-1]
    bound = (k + 2) * unit * abs(alpha) * (a.double().abs() @ b.double().abs())
    if dtype == torch.bfloat16:
        # VDPBF16PS: each product is exact, but tiny operands and sums are taken as zero.
        bound = bound + k * 2.0**-126
    if addend is not None:
        bound = bound + 2 * unit * addend.abs()
    return bound


def assert_close(c, reference, bound):
    dtype = c.dtype
    info = torch.finfo(dtype)
    rounding = 0.0 if dtype == torch.float64 else info.eps / 2
    smallest = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134}.get(dtype, 0.0)
    limit = (bound + rounding * (reference.abs() + bound)) * 1.01 + smallest
    error = (c.double() - reference).abs()
    worst = (error - limit).max().item() if error.numel() else -1
    assert worst <= 0, f"error exceeds the bound by {worst}"


sizes = st.one_of(
    st.integers(0, 40),
    st.sampled_from([47, 48, 63, 64, 65, 96, 129, 200]),
)
layouts = st.sampled_from(["row", "column", "padded", "sparse"])


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_floats(isa, data):
    dtype = data.draw(st.sampled_from(FLOATS))
    m, n, k = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    a = make(m, k, dtype, data.draw(layouts), generator)
    b = make(k, n, dtype, data.draw(layouts), generator)
    c = make(m, n, dtype, data.draw(layouts), generator)
    alpha, beta = data.draw(st.sampled_from([(1.0, 0.0), (1.0, 1.0), (0.5, -2.0)]))
    d = make(m, n, dtype, data.draw(layouts), generator)
    kind = data.draw(st.sampled_from(["full", "row", "column", "scalar", "alias"]))
    if kind == "alias":
        d = c
    elif m and n:
        d = {"full": d, "row": d[:1], "column": d[:, :1], "scalar": d[:1, :1]}[kind].expand(m, n)
    addend = beta * d.double()
    reference = alpha * (a.double() @ b.double()) + addend
    gemm(a, b, c, alpha, beta, d, isa)
    assert_close(c, reference, tolerance(a, b, dtype, alpha, addend))


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_integers_wrap(isa, data):
    dtype = data.draw(st.sampled_from(INTEGERS))
    m, n, k = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    a = make(m, k, dtype, data.draw(layouts), generator)
    b = make(k, n, dtype, data.draw(layouts), generator)
    d = make(1, n, dtype, "row", generator).expand(m, n)
    c = gemm(a, b, make(m, n, dtype, data.draw(layouts), generator), 3.0, 2.0, d, isa)
    # i64 wraps modulo 2^64, whose low bits are the results of the narrower types.
    product = (a.long().unsqueeze(-1) * b.long().unsqueeze(0)).sum(1)
    assert torch.equal(c, (3 * product + 2 * d.long()).to(dtype))


@pytest.mark.parametrize("isa", ISAS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_batches(isa, data):
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16]))
    batch = data.draw(st.integers(0, 9))
    m, n, k = data.draw(sizes), data.draw(sizes), data.draw(sizes)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    a = make(m, k, dtype, data.draw(layouts), generator, batch)
    b = make(k, n, dtype, data.draw(layouts), generator, batch)
    if batch and data.draw(st.booleans()):
        a = a[:1].expand(batch, m, k)
    if batch and data.draw(st.booleans()):
        b = b[:1].expand(batch, k, n)
    d = make(1, n, dtype, "row", generator).expand(batch, m, n)
    c = make(m, n, dtype, data.draw(layouts), generator, batch)
    gemm(a, b, c, 1.0, 1.0, d, isa)
    assert_close(c, a.double() @ b.double() + d.double(), tolerance(a, b, dtype, 1.0, d.double()))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "m,n,k",
    [(300, 520, 1100), (530, 250, 700), (16, 1000, 1537), (5, 300, 2049), (1030, 3, 515)]
    # Several slices of k, each operand the shared one.
    + [(30, 70, 9001), (75, 33, 12289), (64, 64, 8192)],
)
@pytest.mark.parametrize("layout", ["row", "column"])
def test_many_blocks(isa, dtype, m, n, k, layout):
    generator = torch.Generator().manual_seed(m)
    a = make(m, k, dtype, "row", generator)
    b = make(k, n, dtype, layout, generator)
    c = gemm(a, b, torch.empty(m, n, dtype=dtype), isa=isa)
    assert_close(c, a.double() @ b.double(), tolerance(a, b, dtype))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("m", [1, 3, 40])
@pytest.mark.parametrize("layout", ["row", "column"])
def test_nan_and_infinity_stay_in_their_row_and_column(isa, dtype, m, layout):
    n, k = 45, 37
    generator = torch.Generator().manual_seed(0)
    a = make(m, k, dtype, "row", generator)
    b = make(k, n, dtype, layout, generator)
    a[0, 5] = float("nan")
    b[7, 44] = float("inf")
    c = gemm(a, b, torch.empty(m, n, dtype=dtype), isa=isa)
    reference = a.double() @ b.double()
    assert torch.equal(c.isnan(), reference.isnan())
    assert torch.equal(c.isinf(), reference.isinf())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("m", [1, 20])
def test_scalars_that_leave_operands_unread(isa, dtype, m):
    a, b = torch.ones(m, 4, dtype=dtype), torch.ones(4, 50, dtype=dtype)
    d = torch.full((m, 50), 2, dtype=dtype)
    bad = torch.full((m, 50), float("nan") if dtype.is_floating_point else 9).to(dtype)
    assert torch.equal(gemm(a, b, bad.clone(), 1.0, 0.0, bad, isa), torch.full_like(d, 4))
    poisoned = torch.full_like(a, float("nan")) if dtype.is_floating_point else a
    assert torch.equal(gemm(poisoned, b, bad.clone(), 0.0, 3.0, d, isa), torch.full_like(d, 6))
    assert torch.equal(gemm(a[:, :0], b[:0], bad.clone(), 1.0, 0.0, None, isa), torch.zeros_like(d))
    assert torch.equal(gemm(a[:, :0], b[:0], bad.clone(), 1.0, 1.0, d, isa), d)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("m", [3, 40])
def test_every_value_survives_a_product_with_one(isa, dtype, m):
    """Conversions both ways, over all 16-bit patterns but denormals that VDPBF16PS drops."""
    values = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16)
    values = values.view(torch.bfloat16 if dtype == torch.float32 else dtype).to(dtype)
    if isa == "avx512_bf16":
        values = values[~((values.float().abs() < 2.0**-126) & (values != 0))]
    b = values.reshape(1, -1)
    c = gemm(torch.ones(m, 1, dtype=dtype), b, torch.empty(m, b.shape[1], dtype=dtype), isa=isa)
    assert torch.equal(c.nan_to_num(7.0), b.expand_as(c).nan_to_num(7.0))
    assert torch.equal(c.isnan(), b.isnan().expand_as(c))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounds_to_nearest_even_once(isa, dtype):
    """1 + x lies between two representable numbers; x sweeps both halves and the ties."""
    eps = torch.finfo(dtype).eps
    steps = torch.arange(0, 33, dtype=torch.float64) * eps / 8
    b = torch.stack([torch.ones(33, dtype=torch.float64), steps]).to(dtype)
    c = gemm(torch.ones(20, 2, dtype=dtype), b, torch.empty(20, 33, dtype=dtype), isa=isa)
    exact = (1 + b[1].double()).float().to(dtype)
    assert torch.equal(c, exact.expand_as(c))


def test_rejects_what_it_cannot_do():
    a = torch.ones(2, 2)
    with pytest.raises(Exception, match="no kernel for c64"):
        kernels.gemm("c64", [1, 1, 1, 1], 0, [0, 1, 1], 0, [0, 1, 1], 0, [0, 1, 1])
    with pytest.raises(Exception, match="negative"):
        kernels.gemm("f32", [1, -1, 1, 1], a.data_ptr(), [0, 1, 1], 0, [0, 1, 1], 0, [0, 1, 1])
    with pytest.raises(Exception, match="expected portable"):
        gemm(a, a, a.clone(), isa="sse9")


BITS = """
import hashlib, sys, torch
sys.path[:0] = {path!r}
from test_gemm import gemm
digest = hashlib.sha256()
for dtype in (torch.float32, torch.bfloat16):
    for m, n, k in ((200, 300, 400), (16, 700, 900), (1, 999, 700), (700, 5, 300), (50, 50, 50)):
        g = torch.Generator().manual_seed(1)
        a, b = torch.randn(m, k, generator=g).to(dtype), torch.randn(n, k, generator=g).to(dtype)
        for rhs in (b.t(), b.t().contiguous()):
            c = gemm(a, rhs, torch.empty(m, n, dtype=dtype))
            digest.update(c.view(torch.uint8).numpy().tobytes())
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
