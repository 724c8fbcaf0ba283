"""What follows a matrix product element by element runs on its parts as they are finished."""

# Graphs read best with one value a line.
# ruff: noqa: E501

from __future__ import annotations

import math

import pytest
import torch

from torch_neuronx import _C

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}


class Program:
    """Text of a graph that multiplies [m,k] by [k,n] and goes on with the product.

    `apart` leaves the product out: it is the first parameter instead.
    """

    def __init__(self, dtype: str, m: int, k: int, n: int, apart: bool = False) -> None:
        self.dtype, self.m, self.k, self.n = dtype, m, k, n
        self.lines: list[str] = []
        self.inputs: list[torch.Tensor] = []
        self.outputs: list[tuple[str, torch.Tensor]] = []
        if apart:
            self.product = self.parameter(m, n)
        else:
            a, b = self.parameter(m, k), self.parameter(k, n)
            dims = "lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]"
            self.product = self.op(f"dot_general({a}, {b}) {{{dims}}}", m, n)

    def parameter(self, *dims: int, dtype: str | None = None) -> str:
        index, dtype = len(self.inputs), dtype or self.dtype
        generator = torch.Generator().manual_seed(math.prod(dims))
        value = torch.randn(dims, generator=generator, dtype=torch.float64).to(DTYPES[dtype])
        self.inputs.append(value)
        strides = list(value.stride())
        return self.op(f"parameter {{index={index}, strides={strides}}}", *dims, dtype=dtype)

    def op(self, text: str, *dims: int, dtype: str | None = None) -> str:
        shape = ",".join(map(str, dims))
        self.lines.append(f"%{len(self.lines)} = {text} : {dtype or self.dtype}[{shape}]")
        return f"%{len(self.lines) - 1}"

    def output(self, value: str, *dims: int, dtype: str | None = None) -> None:
        self.outputs.append((value, torch.empty(dims, dtype=DTYPES[dtype or self.dtype])))

    def __str__(self) -> str:
        body = "".join(f"  {line}\n" for line in self.lines)
        out = ", ".join(f"{v} {{strides={list(t.stride())}}}" for v, t in self.outputs)
        return f"graph @case {{\n{body}  return {out}\n}}\n"

    def run(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        tensors = [*inputs, *(t for _, t in self.outputs)]
        _C.compiler.run(str(self), [t.data_ptr() for t in tensors])
        return [t.clone() for _, t in self.outputs]


def activation(p: Program) -> None:
    p.output(p.op(f"tanh({p.product})", p.m, p.n), p.m, p.n)


def gated_residual(p: Program) -> None:
    gate, residual = p.parameter(p.n), p.parameter(p.m, p.n)
    wide = p.op(f"broadcast_in_dim({gate}) {{dims=[1]}}", p.m, p.n)
    gated = p.op(f"multiply({p.product}, {wide})", p.m, p.n)
    p.output(p.op(f"add({residual}, {gated})", p.m, p.n), p.m, p.n)


def gate_per_batch(p: Program) -> None:
    """Rows are two dimensions that the gate tells apart."""
    dims = (2, p.m // 2, p.n)
    gate = p.parameter(2, p.n)
    rows = p.op(f"reshape({p.product})", *dims)
    wide = p.op(f"broadcast_in_dim({gate}) {{dims=[0, 2]}}", *dims)
    p.output(p.op(f"multiply({rows}, {wide})", *dims), *dims)


def scale_per_head(p: Program) -> None:
    """Columns are two dimensions, and so is a matrix of numbers that follow from indices."""
    dims = (p.m, p.n // 16, 16)
    scale = p.parameter(p.n // 16)
    heads = p.op(f"reshape({p.product})", *dims)
    wide = p.op(f"broadcast_in_dim({scale}) {{dims=[1]}}", *dims)
    scaled = p.op(f"multiply({heads}, {wide})", *dims)
    for dim in range(3):
        index = p.op(f"iota {{dim={dim}}}", *dims)
        scaled = p.op(f"add({scaled}, {index})", *dims)
    p.output(scaled, *dims)


def conversion(p: Program) -> None:
    other = "f32" if p.dtype != "f32" else "bf16"
    p.output(p.op(f"convert({p.product})", p.m, p.n, dtype=other), p.m, p.n, dtype=other)


def kept(p: Program) -> None:
    """The product is a result too."""
    p.output(p.product, p.m, p.n)
    p.output(p.op(f"logistic({p.product})", p.m, p.n), p.m, p.n)


def flat(p: Program) -> None:
    """One dimension, cut into rows again."""
    line = p.op(f"reshape({p.product})", p.m * p.n)
    p.output(p.op(f"abs({line})", p.m * p.n), p.m * p.n)


BODIES = [activation, gated_residual, gate_per_batch, scale_per_head, conversion, kept, flat]
# Several blocks of rows and columns with rests; few rows; slices of k; few columns.
SHAPES = [(200, 40, 304), (6, 64, 96), (20, 4500, 48), (180, 33, 16)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("body", BODIES)
def test_same_bits_as_two_passes(body, dtype):
    for m, k, n in SHAPES:
        fused, apart = Program(dtype, m, k, n), Program(dtype, m, k, n, apart=True)
        body(fused)
        body(apart)
        assert "then on each part of its result" in _C.compiler.plan(str(fused))
        plain = Program(dtype, m, k, n)
        plain.output(plain.product, m, n)
        (product,) = plain.run(*plain.inputs)
        torch.testing.assert_close(
            product.double(),
            plain.inputs[0].double() @ plain.inputs[1].double(),
            # Rounding of the sums, not the subject here.
            atol=(0.03 if dtype in ("bf16", "f16") else 1e-4) * math.sqrt(k),
            rtol=0.01,
        )
        got = fused.run(*fused.inputs)
        expected = apart.run(product, *apart.inputs[1:])
        for a, b in zip(got, expected, strict=True):
            assert torch.equal(a, b), (m, k, n)


def test_a_batch_of_products():
    text = """\
graph @batch {
  %0 = parameter {index=0, strides=[320, 16, 1]} : f32[5,20,16]
  %1 = parameter {index=1, strides=[512, 32, 1]} : f32[5,16,32]
  %2 = dot_general(%0, %1) {lhs_batch=[0], lhs_contract=[2], rhs_batch=[0], rhs_contract=[1]} : f32[5,20,32]
  %3 = parameter {index=2, strides=[32, 1]} : f32[5,32]
  %4 = broadcast_in_dim(%3) {dims=[0, 2]} : f32[5,20,32]
  %5 = add(%2, %4) : f32[5,20,32]
  return %5 {strides=[640, 32, 1]}
}
"""
    a, b, c = torch.randn(5, 20, 16), torch.randn(5, 16, 32), torch.randn(5, 32)
    out = torch.empty(5, 20, 32)
    _C.compiler.run(text, [t.data_ptr() for t in (a, b, c, out)])
    torch.testing.assert_close(out, a @ b + c[:, None])
    assert "then on each part" in _C.compiler.plan(text)


HEAD = """\
graph @plan {
  %0 = parameter {index=0, strides=[64, 1]} : f32[32,64]
  %1 = parameter {index=1, strides=[64, 1]} : f32[64,64]
  %2 = dot_general(%0, %1) {lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]} : f32[32,64]
"""
PLANS = {
    # A value that a norm and a later sum need is what is written of the product.
    "residual, then a reduction": (
        """\
  %3 = parameter {index=2, strides=[64, 1]} : f32[32,64]
  %4 = add(%3, %2) : f32[32,64]
  %5 = reduce(%4) {dims=[1], kind="add"} : f32[32]
  %6 = broadcast_in_dim(%5) {dims=[0]} : f32[32,64]
  %7 = multiply(%4, %6) : f32[32,64]
  %8 = add(%4, %7) : f32[32,64]
  return %8 {strides=[64, 1]}
""",
        """\
4 operands, 8192 bytes of scratch
library gemm; operands %0 %1 none
  then on each part of its result: add; operands, the result as 1: %2 none scratch
kernel plan, 32 items: reduce_add multiply add; operands scratch %3
""",
    ),
    # Of two products the later one; the earlier one must be whole before.
    "gate": (
        """\
  %3 = parameter {index=2, strides=[64, 1]} : f32[64,64]
  %4 = dot_general(%0, %3) {lhs_batch=[], lhs_contract=[1], rhs_batch=[], rhs_contract=[0]} : f32[32,64]
  %5 = logistic(%2) : f32[32,64]
  %6 = multiply(%5, %4) : f32[32,64]
  return %6 {strides=[64, 1]}
""",
        """\
4 operands, 8192 bytes of scratch
library gemm; operands %0 %1 scratch
library gemm; operands %0 %2 none
  then on each part of its result: logistic multiply; operands, the result as 1: scratch none %3
""",
    ),
    # Wider than the product: not what is written of it when more follows.
    "conversion, then a reduction": (
        """\
  %3 = negate(%2) : f32[32,64]
  %4 = convert(%3) : f64[32,64]
  %5 = reduce(%4) {dims=[1], kind="add"} : f64[32]
  return %5 {strides=[1]}
""",
        """\
3 operands, 8192 bytes of scratch
library gemm; operands %0 %1 none
  then on each part of its result: negate; operands, the result as 0: none scratch
kernel plan, 32 items: convert reduce_add; operands scratch %2
""",
    ),
    "a reduction of the product": (
        """\
  %3 = reduce(%2) {dims=[1], kind="add"} : f32[32]
  return %3 {strides=[1]}
""",
        """\
3 operands, 8192 bytes of scratch
library gemm; operands %0 %1 scratch
kernel plan, 32 items: reduce_add; operands scratch %2
""",
    ),
    # Neighbouring columns that do not lie together: a pass of its own.
    "transposed": (
        """\
  %3 = negate(%2) : f32[32,64]
  return %3 {strides=[1, 32]}
""",
        """\
3 operands, 8192 bytes of scratch
library gemm; operands %0 %1 scratch
kernel plan, 64 items: negate; operands scratch %2
""",
    ),
    # Written into its own input: not before the product has read all of that.
    "in place": (
        """\
  %3 = add(%2, %2) : f32[32,64]
  return %3 {strides=[64, 1]} aliases 0
""",
        """\
3 operands, 8192 bytes of scratch
library gemm; operands %0 %1 none
  then on each part of its result: add; operands, the result as 0: none scratch
kernel copy, 1 items: copy; operands scratch %2
""",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plan(name):
    body, expected = PLANS[name]
    assert _C.compiler.plan(HEAD + body + "}\n") == expected


def test_threads_do_not_matter(run_python):
    """A block may be any thread's; the bits are the same."""
    code = """
import torch, torch_neuronx
torch.manual_seed(0)
x, w, r = torch.randn(300, 200), torch.randn(500, 200), torch.randn(300, 500)
f = torch.compile(lambda x, w, r: r + torch.nn.functional.gelu(torch.nn.functional.linear(x, w)),
                  backend="neuron")
y = f(*(t.to("neuron") for t in (x, w, r))).cpu()
print(hash(y.numpy().tobytes()), float((y - (r + torch.nn.functional.gelu(x @ w.T))).abs().max()) < 1e-3)
"""
    lines = {
        run_python(code, TORCH_NEURONX_HOST_THREADS=str(n), PYTHONHASHSEED="0") for n in (1, 3)
    }
    assert len(lines) == 1 and "True" in lines.pop()
