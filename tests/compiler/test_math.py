"""Elementary functions of generated kernels against float64, on every instruction set of this CPU.

The bound of each function is what csrc/compiler/llvm/math.h promises, in units in the last place of
the f32 nearest to the float64 result. NaN, infinities and the sign of zero must agree exactly.
"""

from __future__ import annotations

import math

import pytest
import torch

from torch_neuronx import _C

INF, NAN = math.inf, math.nan
ISAS = _C.kernels.available_isas()
EXACT, ROUNDED = 0.0, 0.51

# Name in the IR: (float64 reference, largest error in ULP)
UNARY = {
    "abs": (torch.abs, EXACT),
    "negate": (torch.neg, EXACT),
    "sign": (lambda x: torch.where(x.isnan() | (x == 0), x, torch.sign(x)), EXACT),
    "floor": (torch.floor, EXACT),
    "ceil": (torch.ceil, EXACT),
    "trunc": (torch.trunc, EXACT),
    "round_nearest_even": (torch.round, EXACT),
    "sqrt": (torch.sqrt, ROUNDED),
    "rsqrt": (torch.rsqrt, 1.5),
    "exponential": (torch.exp, 1.1),
    "exp2": (torch.exp2, 1.3),
    "exponential_minus_one": (torch.expm1, 1.5),
    "log": (torch.log, 1.1),
    "log2": (torch.log2, ROUNDED),
    "log10": (torch.log10, ROUNDED),
    "log_plus_one": (torch.log1p, 1.5),
    "sine": (torch.sin, 1.5),
    "cosine": (torch.cos, 1.5),
    "tan": (torch.tan, ROUNDED),
    "asin": (torch.asin, ROUNDED),
    "acos": (torch.acos, ROUNDED),
    "atan": (torch.atan, ROUNDED),
    "sinh": (torch.sinh, ROUNDED),
    "cosh": (torch.cosh, ROUNDED),
    "tanh": (torch.tanh, 1.5),
    "asinh": (torch.asinh, ROUNDED),
    "acosh": (torch.acosh, ROUNDED),
    "atanh": (torch.atanh, ROUNDED),
    "logistic": (torch.sigmoid, 1.5),
    "erf": (torch.erf, 1.4),
    "erfc": (torch.erfc, ROUNDED),
    "erf_inv": (torch.erfinv, ROUNDED),
}
BINARY = {
    "power": (torch.pow, ROUNDED),
    "atan2": (torch.atan2, ROUNDED),
    "maximum": (torch.maximum, EXACT),
    "minimum": (torch.minimum, EXACT),
}

MAX, MIN_NORMAL, MIN = 3.4028235e38, 1.1754944e-38, 1e-45
MAGNITUDES = [0.0, MIN, 1e-40, MIN_NORMAL, 1e-10, 0.25, 0.49999997, 0.5, 0.875, 0.99999994, 1.0]
MAGNITUDES += [1.0000001, 1.5, 2.0, 2.5, 3.0, 10.0, 88.72283, 88.72284, 103.97, 127.99, 128.0]
MAGNITUDES += [149.0, 1e4, 131072.0, 131073.0, 8388607.5, 16777215.0, 16777216.0, 1e20, MAX, INF]
SPECIAL = torch.tensor([s * m for m in MAGNITUDES for s in (1, -1)] + [NAN])


def arguments(count: int, step: int) -> torch.Tensor:
    """Special values, every `step`-th float, and many of ordinary size."""
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64).to(torch.int32)
    ordinary = torch.randn(count, generator=torch.Generator().manual_seed(0)) * 4
    return torch.cat([SPECIAL, bits.view(torch.float32), ordinary])


def run_unary(name: str, x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _C.compiler.eval_unary_f32(name, x.data_ptr(), y.data_ptr(), x.numel())
    return y


def run_binary(name: str, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(a)
    _C.compiler.eval_binary_f32(name, a.data_ptr(), b.data_ptr(), y.data_ptr(), a.numel())
    return y


def errors(result: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """In ULP; infinite where one is NaN or infinite and the other is not the same."""
    assert result.dtype == torch.float32
    assert exact.dtype == torch.float64
    rounded = exact.float()
    _, exponent = torch.frexp(exact.abs())
    ulp = torch.ldexp(torch.ones_like(exact), (exponent - 24).clamp(min=-149))
    error = (result.double() - exact).abs() / ulp
    same = (result == rounded) | (result.isnan() & rounded.isnan())
    ordinary = result.isfinite() & rounded.isfinite()
    return torch.where(ordinary, error, torch.where(same, 0.0, INF))


def check(result: torch.Tensor, exact: torch.Tensor, bound: float, inputs: list) -> None:
    error = errors(result, exact)
    worst = int(error.argmax())
    at = [x[worst].item() for x in inputs]
    assert error[worst] <= bound, f"{at}: {result[worst]} for {exact[worst]}, {error[worst]} ULP"


def check_unary(name: str, step: int = 100003) -> None:
    reference, bound = UNARY[name]
    x = arguments(5000, step)
    result = run_unary(name, x)
    exact = reference(x.double())
    check(result, exact, bound, [x])
    zero = (result == 0) & (exact == 0)
    assert torch.equal(result[zero].signbit(), exact[zero].signbit()), "sign of zero"


def check_binary(name: str) -> None:
    reference, bound = BINARY[name]
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31, (2, 20000), generator=generator).to(torch.int32)
    wild = bits.view(torch.float32)
    mild = torch.randn(2, 20000, generator=generator)
    mild[0] = torch.exp(mild[0] * 4)
    mild[1] *= 8
    whole = torch.randn(2, 5000, generator=generator)
    whole[1] = torch.round(whole[1] * 20)
    pairs = torch.cartesian_prod(SPECIAL, SPECIAL).T
    a, b = torch.cat([pairs, wild, mild, whole], dim=1).contiguous()
    result = run_binary(name, a, b)
    exact = reference(a.double(), b.double())
    check(result, exact, bound, [a, b])
    if name in ("power", "atan2"):
        zero = (result == 0) & (exact == 0)
        assert torch.equal(result[zero].signbit(), exact[zero].signbit()), "sign of zero"


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    check_unary(name)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    check_binary(name)


@pytest.mark.parametrize("n", [1, 3, 17, 70])
@pytest.mark.parametrize("name", ["exponential", "sine", "tan", "log_plus_one"])
def test_tails_give_the_same_bits(name, n):
    x = torch.randn(70, generator=torch.Generator().manual_seed(2)).abs() * 30
    x[::5] *= 1e6  # sine and tangent take their branch for large arguments
    assert torch.equal(run_unary(name, x[:n].clone()), run_unary(name, x)[:n])


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set(isa, run_python):
    run_python(
        """
        from tests.compiler.test_math import BINARY, UNARY, check_binary, check_unary
        for name in UNARY:
            check_unary(name, 1000003)
        for name in BINARY:
            check_binary(name)
        """,
        TORCH_NEURONX_HOST_ISA=isa,
    )


def test_whole_results_are_exact():
    n = torch.arange(-126, 128, dtype=torch.float32)
    powers = torch.ldexp(torch.ones_like(n), n.int())
    assert torch.equal(run_unary("exp2", n), powers)
    assert torch.equal(run_unary("log2", powers), n)
    tens = torch.tensor([1.0, 10.0, 100.0, 1000.0, 1e10])
    assert run_unary("log10", tens).tolist() == [0, 1, 2, 3, 10]
    zero = torch.zeros(4)
    for name in ("exponential", "cosine", "cosh", "erfc"):
        assert run_unary(name, zero).tolist() == [1] * 4
