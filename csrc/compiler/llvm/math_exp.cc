// Exponentials: x = n ln 2 + r, e^x = 2^n e^r.
#include "compiler/llvm/math_functions.h"
#include "compiler/llvm/math_polynomials.h"

namespace neuron::codegen {

namespace {

constexpr double kLog2E = 1.4426950408889634;
// ln 2 in two parts for f32: the first has 15 bits, so its product with |n| <= 256 is exact.
constexpr double kLn2High = 0x1.62e4p-1;
constexpr double kLn2Low = 0x1.7f7d1cf79abc9p-20;
// And for f64: 37 bits, exact for |n| < 2048.
constexpr double kLn2HighF64 = 0x1.62e42fefap-1;
constexpr double kLn2LowF64 = 0x1.cf79abc9e3b3ap-40;

struct Reduced {
  Num r;  // |r| <= ln(2) / 2
  Rounded n;
};

Reduced ReduceExp(Num x) {
  const Rounded n = RoundBySum(x, kLog2E);
  return {MulAdd(n.value, -kLn2Low, MulAdd(n.value, -kLn2High, x)), n};
}

Reduced ReduceExpF64(Num x) {
  const Rounded n = RoundBySum(x, kLog2E);
  return {MulAdd(n.value, -kLn2LowF64, MulAdd(n.value, -kLn2HighF64, x)), n};
}

// e^r
Num ExpOfReduced(Num r) { return MulAdd(Polynomial(r, poly::kExpF32), r * r, r) + 1.0; }

// e^x for |x| < 87: the result is normal.
Num ExpNormal(Num x) {
  const Reduced reduced = ReduceExp(x);
  return ExpOfReduced(reduced.r) * PowerOfTwo(reduced.n.low, x);
}

}  // namespace

// Two factors 2^(n/2): either is normal where 2^n may not be, and only the last product rounds.
Num Scale(Num mantissa, Num low, MathOptions options) {
  if (options.scaling) {
    llvm::IRBuilderBase& b = low.builder();
    const Num n = low - low.Bits(0x4b400000);
    return {b, b.CreateLdexp(mantissa.value, n.value)};
  }
  const Num half = low >> 1;
  return mantissa * PowerOfTwo(half, mantissa) * PowerOfTwo(low - half, mantissa);
}

// Beyond the bounds the result is infinity or rounds to zero.
Num Exp(Num x, MathOptions options) {
  const Reduced reduced = ReduceExp(AtLeast(AtMost(x, 89.0), -105.0));
  return Scale(ExpOfReduced(reduced.r), reduced.n.low, options);
}

Num Exp2(Num x, MathOptions options) {
  const Num clamped = AtLeast(AtMost(x, 129.0), -151.0);
  const Rounded n = RoundBySum(clamped);
  const Num r = clamped - n.value;
  return Scale(MulAdd(Polynomial(r, poly::kExp2F32), r, r.Constant(1.0)), n.low, options);
}

// 2^n (e^r - 1) + (2^n - 1). 2^n stays finite at n = 128 by doubling last.
Num Expm1(Num x) {
  const Reduced reduced = ReduceExp(AtLeast(AtMost(x, 89.0), -18.0));
  const Num overflows = reduced.n.value > 127.0;
  const Num r = reduced.r;
  const Num low = reduced.n.low - Select(overflows, r.AsInt().Bits(1), r.AsInt().Bits(0));
  const Num two_n = PowerOfTwo(low, x);
  const Num fraction = MulAdd(Polynomial(r, poly::kExpm1F32), r * r, r);
  const Num out = MulAdd(fraction, two_n, two_n - 1.0);
  return WithSign(Select(overflows, out * 2.0, out), SignBit(x));
}

// With t = e^-|x|: t / (1 + t) below 0 and 1 - t / (1 + t) above: no overflow, no cancellation. A
// quotient's last place can be half of t's, so what the roundings of t and 1 + t lose (relatively:
// t_lost and sum_lost) is put back to first order: d log(t / (1 + t)) = (t_lost - sum_lost) / (1 +
// t).
Num Logistic(Num x, MathOptions options) {
  const Reduced reduced = ReduceExp(AtLeast(-Abs(x), -105.0));
  const Num r = reduced.r;
  const Num fraction = MulAdd(Polynomial(r, poly::kExpF32), r * r, r);
  const Num power = fraction + 1.0;
  const Num power_lost = fraction - (power - 1.0);
  const Num t_lost = MulAdd(-power_lost, fraction, power_lost);  // power_lost / power, nearly
  const Num t = Scale(power, reduced.n.low, options);
  const Num sum = t + 1.0;
  const Num sum_lost = t - (sum - 1.0);
  const Num quotient = t / sum;
  const Num lower = MulAdd(quotient, (t_lost - sum_lost) * (1.0 - quotient), quotient);
  return Select(x < 0.0, lower, 1.0 - lower);
}

// 1 - 2 / (e^2|x| + 1), and an odd polynomial where that cancels. It is 1 from 9.02 on.
Num Tanh(Num x) {
  const Num a = AtMost(Abs(x), 9.1);
  const Num large = 1.0 - 2.0 / (ExpNormal(a + a) + 1.0);
  const Num u = a * a;
  const Num small = MulAdd(Polynomial(u, poly::kTanhF32) * u, a, a);
  return WithSign(Select(a < 0.625, small, large), SignBit(x));
}

Num Exp2F64(Num x) {
  const Rounded n = RoundBySum(x);
  const Num r = x - n.value;
  return MulAdd(Polynomial(r, poly::kExp2F64), r, r.Constant(1.0)) * PowerOfTwo(n.low, x);
}

Num Expm1F64(Num x) {
  const Reduced reduced = ReduceExpF64(x);
  const Num r = reduced.r;
  const Num two_n = PowerOfTwo(reduced.n.low, x);
  return MulAdd(MulAdd(Polynomial(r, poly::kExpm1F64), r * r, r), two_n, two_n - 1.0);
}

Num ExpF64(Num x) {
  const Reduced reduced = ReduceExpF64(x);
  const Num r = reduced.r;
  return (MulAdd(Polynomial(r, poly::kExpm1F64), r * r, r) + 1.0) * PowerOfTwo(reduced.n.low, x);
}

// With t = e^|x| - 1: (t + t / (t + 1)) / 2. From 89.5 on the result is infinity in f32.
Num Sinh(Num x) {
  const Num t = Expm1F64(AtMost(Abs(x), 90.0).ToF64());
  return WithSign(((t + t / (t + 1.0)) * 0.5).ToF32(), SignBit(x));
}

Num Cosh(Num x) {
  const Num e = ExpF64(AtMost(Abs(x), 90.0).ToF64());
  return ((e + 1.0 / e) * 0.5).ToF32();
}

}  // namespace neuron::codegen
