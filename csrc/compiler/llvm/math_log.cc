// Logarithms: x = 2^e m with sqrt(1/2) <= m < sqrt(2), log x = e ln 2 + log m.
#include <limits>

#include "compiler/llvm/math_functions.h"
#include "compiler/llvm/math_polynomials.h"

namespace neuron::codegen {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLn2 = 0.6931471805599453;
constexpr double kLog2E = 1.4426950408889634;
constexpr double kLog10E = 0.4342944819032518;
constexpr double kLog10Of2 = 0.3010299956639812;
// ln 2 in two parts: the first has 15 bits, so its product with |e| <= 256 is exact in f32.
constexpr double kLn2High = 0x1.62e4p-1;
constexpr double kLn2Low = 0x1.7f7d1cf79abc9p-20;

// The special cases of a logarithm: x = 0, x < 0, and what is its own result (infinity, NaN).
Num WithLogSpecials(Num x, Num result) {
  const Num special =
      Select(Eq(x, 0.0), x.Constant(-kInfinity), Select(x < 0.0, x.Constant(kNan), x));
  const Num ordinary = (x > 0.0) & (x < kInfinity);
  return Select(ordinary, result, special);
}

struct Split {
  Num e;  // f64, an integer
  Num f;  // m - 1
};

// x normal and positive, f64. No arithmetic shift and no conversion of 64-bit integers, which AVX2
// lacks: the biased exponent becomes a double as the low bits of 2^52.
Split SplitF64(Num x) {
  constexpr uint64_t kOne = uint64_t{1023} << 52;
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  const Num bits = x.AsInt();
  const Num shifted = bits + bits.Bits(kOne - kRootHalf);
  const Num e = ((shifted >> 52) | 0x4330000000000000).AsFloat() - (0x1p52 + 1023);
  const Num m = ((shifted & kFraction) + bits.Bits(kRootHalf)).AsFloat();
  return {e, m - 1.0};
}

struct SplitOfF32 {
  Num e;         // f32, an integer
  Num f;         // m - 1
  Num exponent;  // e as an integer
};

// x normal and positive, f32.
SplitOfF32 SplitF32(Num x) {
  constexpr uint64_t kRootHalf = 0x3f3504f3;
  llvm::IRBuilderBase& b = x.builder();
  const Num bits = x.AsInt();
  const Num above = bits - bits.Bits(kRootHalf);
  const Num exponent = {b, b.CreateAShr(above.value, 23)};
  const Num e = {b, b.CreateSIToFP(exponent.value, x.value->getType())};
  return {e, (bits - (above & 0xff800000)).AsFloat() - 1.0, exponent};
}

// e ln 2 + log(1 + f) in f32, from the smallest term to the largest: e ln2_low, f^3 P(f), -f^2 / 2,
// f, e ln2_high.
Num LogOfSplit(Num e, Num f) {
  const Num square = f * f;
  const Num cubic = MulAdd(Polynomial(f, poly::kLogF32) * f, square, e * kLn2Low);
  return MulAdd(e, kLn2High, MulAdd(square, -0.5, cubic) + f);
}

// log(1 + f) in f64
Num LogOfReduced(Num f) { return MulAdd(Polynomial(f, poly::kLogF64), f * f, f); }

// log(x) * scale, where per_octave = log(2) * scale. Zero and infinity are for the caller.
Num ScaledLogF64(Num x, double scale, double per_octave) {
  const Split split = SplitF64(x);
  return MulAdd(split.e, per_octave, LogOfReduced(split.f) * scale);
}

}  // namespace

Num Log(Num x) {
  const Num denormal = x < 0x1p-126;
  const SplitOfF32 split = SplitF32(Select(denormal, x * 0x1p23, x));
  const Num e = split.e - Select(denormal, x.Constant(23.0), x.Constant(0.0));
  return WithLogSpecials(x, LogOfSplit(e, split.f));
}

Num Log2(Num x) { return WithLogSpecials(x, ScaledLogF64(x.ToF64(), kLog2E, 1.0).ToF32()); }

Num Log10(Num x) { return WithLogSpecials(x, ScaledLogF64(x.ToF64(), kLog10E, kLog10Of2).ToF32()); }

// 1 + x rounds in f64 too; what it loses is a first-order correction.
Num Log1pF64(Num x) {
  const Num sum = x + 1.0;
  const Num lost = x - (sum - 1.0);
  // Where x is large, 1 is what was lost: negligible, and the correction must not count.
  return ScaledLogF64(sum, 1.0, kLn2) + Select(Abs(x) < 1.0, lost, lost.Constant(0.0));
}

// 1 + x rounds; what it loses joins m - 1, which for small x makes it x again. Beyond 2^25 it does
// not count. The sign is that of x, also of -0; 1 + x is 0, negative or infinite where log1p is
// special.
Num Log1p(Num x) {
  const Num sum = x + 1.0;
  const Num counts = x < 0x1p25;
  const Num lost_one = Select(counts, 1.0 - (sum - x), x.Constant(0.0));
  const Num lost = Select(x > 1.0, lost_one, x - (sum - 1.0));
  const SplitOfF32 split = SplitF32(sum);
  const Num zero = split.exponent.Bits(0);
  const Num scale = PowerOfTwo(Select(counts, zero - split.exponent, zero), x);
  const Num result = LogOfSplit(split.e, MulAdd(lost, scale, split.f));
  return WithLogSpecials(sum, WithSign(Abs(result), SignBit(x)));
}

// log(a + sqrt(a^2 + 1)) as log1p of a + a^2 / (1 + sqrt(a^2 + 1)), which keeps small a.
Num Asinh(Num x) {
  const Num a = Abs(x).ToF64();
  const Num square = a * a;
  const Num sum = a + square / (Sqrt(square + 1.0) + 1.0);
  const Num out = Select(a < kInfinity, Log1pF64(sum), a);
  return WithSign(Abs(out.ToF32()), SignBit(x));
}

// log1p(d + sqrt(d (d + 2))) with d = x - 1; NaN below 1 comes from the root.
Num Acosh(Num x) {
  const Num d = x.ToF64() - 1.0;
  const Num root = Sqrt(d * (d + 2.0));
  const Num out = Log1pF64(d + root).ToF32();
  const Num defined = (x < kInfinity) & ~(x < 1.0);
  return Select(defined, out, Select(Eq(x, kInfinity), x, x.Constant(kNan)));
}

// log1p(2 a / (1 - a)) / 2
Num Atanh(Num x) {
  const Num a = Abs(x).ToF64();
  const Num out = (Log1pF64((a + a) / (1.0 - a)) * 0.5).ToF32();
  const Num magnitude = Abs(x);
  const Num edge = Select(Eq(magnitude, 1.0), x.Constant(kInfinity), x.Constant(kNan));
  return WithSign(Select(magnitude < 1.0, Abs(out), edge), SignBit(x));
}

// 2^(y log2 |x|) in f64, then the cases that the sign of x and the values 0 and 1 decide.
Num Pow(Num x, Num y) {
  const Num magnitude = Abs(x);
  const Num xd = magnitude.ToF64();
  const Num yd = y.ToF64();
  const Num finite = Select(xd < kInfinity, ScaledLogF64(xd, kLog2E, 1.0), xd);
  const Num log2 = Select(Eq(xd, 0.0), xd.Constant(-kInfinity), finite);
  const Num power = Exp2F64(AtLeast(AtMost(yd * log2, 200.0), -200.0)).ToF32();

  // From 2^53 on every number is even: below, 2^52 + |y| holds the integer in its low bits.
  const Num size = AtMost(Abs(yd), 0x1p30);
  const Num shifted = size + 0x1p52;
  const Num integral = Eq(shifted - 0x1p52, size);
  const Num odd =
      integral & Num(x.builder(), x.builder().CreateTrunc(shifted.AsInt().value,
                                                          x.Like(x.builder().getInt1Ty())));
  const Num sign = Select(odd, SignBit(x), x.AsInt().Bits(0));
  const Num signed_power = WithSign(power, sign);

  const Num undefined = (x < 0.0) & (magnitude < kInfinity) & ~integral;
  const Num result = Select(undefined, x.Constant(kNan), signed_power);
  const Num minus_one_to_infinity = Eq(x, -1.0) & Eq(Abs(y), kInfinity);
  const Num one = Eq(x, 1.0) | Eq(y, 0.0) | minus_one_to_infinity;
  return Select(one, x.Constant(1.0), result);
}

}  // namespace neuron::codegen
