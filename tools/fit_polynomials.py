"""Fits the polynomials of csrc/compiler/llvm/math_*.cc and prints math_polynomials.h.

Usage: python tools/fit_polynomials.py > csrc/compiler/llvm/math_polynomials.h   (needs mpmath)

Each polynomial P(u) minimises the largest |weight(u) * (target(u) - P(u))| over an interval, by
the Remez exchange on a Chebyshev-spaced grid in 50-digit arithmetic; the weight turns an error of P
into a relative error of the function that is made from it. Coefficients for f32 are rounded one by
one, lowest first, and the rest is fitted again to what the rounding left, where the interval allows
it: around u = 0 the rest cannot correct the rounding and all are rounded at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 50
GRID = 400
Function = Callable[[mpf], mpf]


@dataclass
class Fit:
    name: str
    doc: str
    low: mpf
    high: mpf
    degree: int
    target: Function
    weight: Function
    f32: bool = False


def horner(coefficients: list[mpf], u: mpf) -> mpf:
    value = mpf(0)
    for c in reversed(coefficients):
        value = value * u + c
    return value


def extrema(errors: list[mpf], count: int) -> list[int]:
    """Indices of `count` extrema of alternating sign, the largest run of neighbours."""
    picked: list[int] = []
    for i, e in enumerate(errors):
        if picked and (e > 0) == (errors[picked[-1]] > 0):
            if abs(e) > abs(errors[picked[-1]]):
                picked[-1] = i
        else:
            picked.append(i)
    while len(picked) > count:
        picked.pop(0 if abs(errors[picked[0]]) < abs(errors[picked[-1]]) else -1)
    return picked


def remez(u: list[mpf], target: list[mpf], weight: list[mpf], degree: int) -> list[mpf]:
    """Coefficients, lowest first, of the weighted minimax polynomial on the grid u."""
    count = degree + 2
    at = [round(i * (len(u) - 1) / (count - 1)) for i in range(count)]
    coefficients: list[mpf] = []
    for _ in range(30):
        rows = [
            [u[i] ** k for k in range(degree + 1)] + [(-1) ** j / weight[i]]
            for j, i in enumerate(at)
        ]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([target[i] for i in at]))
        coefficients = list(solution)[:-1]
        errors = [
            w * (t - horner(coefficients, x)) for x, t, w in zip(u, target, weight, strict=True)
        ]
        level = abs(solution[degree + 1])
        if max(map(abs, errors)) <= level * mpf("1.0001"):
            break
        new = extrema(errors, count)
        if len(new) < count:
            break
        at = new
    return coefficients


def to_f32(value: mpf) -> mpf:
    return mpf(struct.unpack("f", struct.pack("f", float(value)))[0])


def fit(spec: Fit) -> tuple[list[mpf], mpf]:
    middle, half = (spec.high + spec.low) / 2, (spec.high - spec.low) / 2
    u = [middle - half * mp.cos(mp.pi * (i + mpf(1) / 2) / GRID) for i in range(GRID)]
    target = [spec.target(x) for x in u]
    weight = [abs(spec.weight(x)) for x in u]
    coefficients = [mpf(float(c)) for c in remez(u, target, weight, spec.degree)]
    if spec.f32 and spec.low < 0:
        coefficients = [to_f32(c) for c in coefficients]
    elif spec.f32:
        coefficients = []
        t, w = target, weight
        for degree in range(spec.degree, -1, -1):
            coefficients.append(to_f32(remez(u, t, w, degree)[0]))
            t = [(y - coefficients[-1]) / x for x, y in zip(u, t, strict=True)]
            w = [y * abs(x) for x, y in zip(u, w, strict=True)]
    errors = (w * (t - horner(coefficients, x)) for x, t, w in zip(u, target, weight, strict=True))
    return coefficients, max(map(abs, errors))


def odd(f: Function, first: int) -> tuple[Function, Function]:
    """For f(a) = a + a u P(u) (first = 1) or a + a P(u) (first = 0), u = a^2: target and weight."""

    def target(u: mpf) -> mpf:
        a = mp.sqrt(u)
        return (f(a) / a - 1) / u**first

    def weight(u: mpf) -> mpf:
        a = mp.sqrt(u)
        return u**first * a / f(a)

    return target, weight


def expm1_over(u: mpf) -> mpf:
    return (mp.expm1(u) - u) / u**2


def erfcx(t: mpf) -> mpf:
    """exp(x^2) erfc(x) for t = 3 / (3 + x)."""
    x = 3 / t - 3
    return mp.exp(x * x) * mp.erfc(x)


def erfinv_of_w(w: mpf) -> mpf:
    """erf_inv(x) / x for w = -log(1 - x^2)."""
    x = mp.sqrt(-mp.expm1(-w))
    return mp.erfinv(x) / x


LN2 = mp.log(2)
ROOT = mp.sqrt(2)
HALF_LN2 = LN2 * mpf("0.502")
FITS = [
    Fit(
        "kExpF32",
        "e^u = 1 + u + u^2 P(u), |u| <= ln(2)/2",
        -HALF_LN2,
        HALF_LN2,
        4,
        expm1_over,
        lambda u: u**2 / mp.exp(u),
        f32=True,
    ),
    Fit(
        "kExp2F32",
        "2^u = 1 + u P(u), |u| <= 1/2",
        mpf(-0.502),
        mpf(0.502),
        5,
        lambda u: (mp.power(2, u) - 1) / u,
        lambda u: u / mp.power(2, u),
        f32=True,
    ),
    Fit(
        "kExpm1F32",
        "e^u - 1 = u + u^2 P(u), |u| <= ln(2)/2",
        -HALF_LN2,
        HALF_LN2,
        5,
        expm1_over,
        lambda u: u**2 / mp.expm1(u),
        f32=True,
    ),
    Fit(
        "kLogF32",
        "log(1+u) = u - u^2/2 + u^3 P(u), sqrt(1/2) <= 1+u <= sqrt(2)",
        1 / ROOT - 1,
        ROOT - 1,
        7,
        lambda u: (mp.log1p(u) - u + u**2 / 2) / u**3,
        lambda u: u**3 / mp.log1p(u),
        f32=True,
    ),
    Fit(
        "kSinF32",
        "sin(a) = a + a u P(u), u = a^2, |a| <= pi/4",
        mpf(0),
        (mp.pi / 4) ** 2,
        2,
        *odd(mp.sin, 1),
        f32=True,
    ),
    Fit(
        "kCosF32",
        "cos(a) = 1 + u P(u), u = a^2, |a| <= pi/4",
        mpf(0),
        (mp.pi / 4) ** 2,
        3,
        lambda u: (mp.cos(mp.sqrt(u)) - 1) / u,
        lambda u: u / mp.cos(mp.sqrt(u)),
        f32=True,
    ),
    Fit(
        "kTanhF32",
        "tanh(a) = a + a u P(u), u = a^2, |a| <= 0.625",
        mpf(0),
        mpf(0.625) ** 2,
        4,
        *odd(mp.tanh, 1),
        f32=True,
    ),
    Fit(
        "kErfF32",
        "erf(a) = a + a P(u), u = a^2, |a| <= 1",
        mpf(0),
        mpf(1),
        6,
        *odd(mp.erf, 0),
        f32=True,
    ),
    Fit(
        "kErfTailF32",
        "log2(1 - erf(u)) = P(u), 1 <= u <= 4",
        mpf(1),
        mpf(4),
        7,
        lambda u: mp.log(mp.erfc(u), 2),
        lambda u: mp.erfc(u) * LN2 / mp.erf(u),
        f32=True,
    ),
    Fit(
        "kExp2F64",
        "2^u = 1 + u P(u), |u| <= 1/2",
        mpf(-0.501),
        mpf(0.501),
        6,
        lambda u: (mp.power(2, u) - 1) / u,
        lambda u: u / mp.power(2, u),
    ),
    Fit(
        "kExpm1F64",
        "e^u - 1 = u + u^2 P(u), |u| <= ln(2)/2",
        -HALF_LN2,
        HALF_LN2,
        6,
        expm1_over,
        lambda u: u**2 / mp.expm1(u),
    ),
    Fit(
        "kLogF64",
        "log(1+u) = u + u^2 P(u), sqrt(1/2) <= 1+u <= sqrt(2)",
        1 / ROOT - 1,
        ROOT - 1,
        12,
        lambda u: (mp.log1p(u) - u) / u**2,
        lambda u: u**2 / mp.log1p(u),
    ),
    Fit(
        "kTanF64",
        "tan(a) = a + a u P(u), u = a^2, |a| <= pi/4",
        mpf(0),
        (mp.pi / 4) ** 2,
        7,
        *odd(mp.tan, 1),
    ),
    Fit(
        "kAtanF64",
        "atan(a) = a + a u P(u), u = a^2, |a| <= 1",
        mpf(0),
        mpf(1),
        11,
        *odd(mp.atan, 1),
    ),
    Fit(
        "kAsinF64",
        "asin(a) = a + a u P(u), u = a^2, |a| <= 1/2",
        mpf(0),
        mpf(0.25),
        7,
        *odd(mp.asin, 1),
    ),
    Fit(
        "kErfcF64",
        "e^(x^2) erfc(x) = P(u), u = 3 / (3 + x), 0 <= x <= 10.5",
        3 / mpf(13.5),
        mpf(1),
        13,
        erfcx,
        lambda u: 1 / erfcx(u),
    ),
    Fit(
        "kErfInvF64",
        "erf_inv(x) = x P(u), u = -log(1 - x^2) <= 6",
        mpf(0),
        mpf(6),
        12,
        erfinv_of_w,
        lambda u: 1 / erfinv_of_w(u),
    ),
    Fit(
        "kErfInvTailF64",
        "erf_inv(x) = x P(u), u = sqrt(-log(1 - x^2)), 6 <= u^2 <= 16.1",
        mp.sqrt(6),
        mp.sqrt(mpf(16.1)),
        10,
        lambda u: erfinv_of_w(u * u),
        lambda u: 1 / erfinv_of_w(u * u),
    ),
]


def main() -> None:
    print(
        "// Written by tools/fit_polynomials.py: minimax polynomials, lowest coefficient first, and"
    )
    print("// the relative error of each function when computed from them in exact arithmetic.")
    print("#pragma once\n\n// clang-format off\nnamespace neuron::codegen::poly {\n")
    for spec in FITS:
        coefficients, error = fit(spec)
        digits = 9 if spec.f32 else 17
        print(f"// {spec.doc}.\n// Error 2^{float(mp.log(error, 2)):.1f}.")
        print(f"inline constexpr double {spec.name}[] = {{")
        for c in coefficients:
            print(f"    {float(c):.{digits}g},")
        print("};\n", flush=True)
    print("}  // namespace neuron::codegen::poly")


if __name__ == "__main__":
    main()
