// Sine, cosine, tangent: the argument less the nearest multiple of pi / 2.
//
// Up to 2^17 the multiple n pi / 2 is subtracted by parts (Cody and Waite). With FMA in f32: pi / 2
// is p1 + p2 + p3 of 24 bits each, cut off and not rounded; |x| - n p1 is a multiple of 2^-24 and
// below 1, so exact, and what p3 leaves is below n 2^-73. Without FMA in f64, with n p1 exact
// because p1 has 33 bits. Larger arguments take a branch: Payne and Hanek's product with the bits
// of 2 / pi.
#include <llvm/IR/MDBuilder.h>

#include <array>

#include "compiler/llvm/math_functions.h"
#include "compiler/llvm/math_polynomials.h"

namespace neuron::codegen {

namespace {

constexpr double kHalfPi = 1.5707963267948966;
constexpr double kTwoOverPi = 0.6366197723675814;
constexpr double kLarge = 0x1p17;
constexpr double kPartsF32[] = {0x1.921fb4p+0, 0x1.4442d0p-24, 0x1.846988p-48};
constexpr double kPartsF64[] = {0x1.921fb544p+0, 0x1.0b4611a626331p-34};

// |x| = n pi / 2 + r + low, |r| <= pi / 4
struct Phase {
  Num r;
  Num low;  // what the rounding of r lost; r where there is no need of it
  Num n;    // integer; only its lowest two bits count
};

// Both values where no lane is large, otherwise those of `slow` in the lanes that are.
Phase WithLarge(Num large, Phase fast, Phase (*slow)(Num a), Num a) {
  llvm::IRBuilderBase& b = large.builder();
  Num any = large;
  if (large.value->getType()->isVectorTy()) any = {b, b.CreateOrReduce(large.value)};
  llvm::BasicBlock* from = b.GetInsertBlock();
  llvm::Function* function = from->getParent();
  auto* slow_block = llvm::BasicBlock::Create(b.getContext(), "large_argument", function);
  auto* join = llvm::BasicBlock::Create(b.getContext(), "reduced", function);
  llvm::MDBuilder metadata(b.getContext());
  b.CreateCondBr(any.value, slow_block, join, metadata.createUnlikelyBranchWeights());
  b.SetInsertPoint(slow_block);
  const Phase found = slow(a);
  const Phase chosen = {Select(large, found.r, fast.r), Select(large, found.low, fast.low),
                        Select(large, found.n, fast.n)};
  b.CreateBr(join);
  b.SetInsertPoint(join);
  const auto merge = [&](Num before, Num after) {
    llvm::PHINode* phi = b.CreatePHI(before.value->getType(), 2);
    phi->addIncoming(before.value, from);
    phi->addIncoming(after.value, slow_block);
    return Num(b, phi);
  };
  const Num r = merge(fast.r, chosen.r);
  const Num low = merge(fast.low, chosen.low);
  return {r, low, merge(fast.n, chosen.n)};
}

// |x| 2 / pi mod 4, in units of 2^-62. |x| = m 2^(E - 150), E biased. Bits of 2 / pi of weight
// 2^(152 - E) and above only add multiples of 4; the product with the next 96 bits, mod 2^96, has
// the wanted value in its upper 64 bits with an error below 2^-70 of a quadrant, and no f32 comes
// nearer than 2^-32 to a multiple of pi / 2.
Num LargeQuadrants(Num a) {
  // Bits of 2 / pi: the first word has weights 2^32 to 2, the next 1 to 2^-31.
  constexpr std::array<uint32_t, 8> kBits = {0x00000000, 0x517cc1b7, 0x27220a94, 0xfe13abe8,
                                             0xfa9a6ee0, 0x6db14acc, 0x9e21c820, 0xff28b1d5};
  llvm::IRBuilderBase& b = a.builder();
  const Num bits = a.AsInt();
  const Num position = (bits >> 23) - bits.Bits(119);
  const Num word = position >> 5;
  const Num shift = position & 31;
  const auto word_at = [&](size_t offset) {
    Num out = bits.Bits(kBits[offset]);
    for (uint64_t k = 1; k <= 4; ++k) {
      out = Select(Eq(word, word.Bits(k)), bits.Bits(kBits[k + offset]), out);
    }
    return out;
  };
  const std::array<Num, 4> words = {word_at(0), word_at(1), word_at(2), word_at(3)};
  llvm::Type* wide = a.Like(b.getInt64Ty());
  const auto widen = [&](Num value) { return Num(b, b.CreateZExt(value.value, wide)); };
  const auto shifted = [&](size_t k) {
    return widen({b, b.CreateIntrinsic(bits.value->getType(), llvm::Intrinsic::fshl,
                                       {words[k].value, words[k + 1].value, shift.value})});
  };
  const Num m = widen((bits & 0x7fffff) | 0x800000);
  return ((m * shifted(0)) << 32) + m * shifted(1) + ((m * shifted(2)) >> 32);
}

// From r in f64 and an i64 n to an f32, what it lost, and an i32.
Phase NarrowPhase(Num r, Num n) {
  llvm::IRBuilderBase& b = n.builder();
  const Num narrow = r.ToF32();
  const Num low = (r - narrow.ToF64()).ToF32();
  return {narrow, low, {b, b.CreateTrunc(n.value, n.Like(b.getInt32Ty()))}};
}

// a in f32, r in f64, n an i64.
Phase LargePhaseF64(Num a) {
  llvm::IRBuilderBase& b = a.builder();
  const Num quadrants = LargeQuadrants(a);
  const Num n = (quadrants + quadrants.Bits(uint64_t{1} << 61)) >> 62;
  const Num rest = quadrants - (n << 62);
  const Num f = {b, b.CreateSIToFP(rest.value, a.Like(b.getDoubleTy()))};
  const Num r = f * (kHalfPi * 0x1p-62) + (a - a).ToF64();  // infinity - infinity: NaN
  return {r, r, n};
}

Phase LargePhase(Num a) {
  const Phase phase = LargePhaseF64(a);
  return NarrowPhase(phase.r, phase.n);
}

// The difference exact - r is exact where |r| > 2^-6. Below, what is found is not `low` but it is
// under 2^-28, as `low` is, and rounding to multiples of 2^-27 clears it.
Phase SmallPhaseFused(Num a) {
  constexpr double kRound = 0x1.8p-4;
  const auto [p1, p2, p3] = kPartsF32;
  const Rounded n = RoundBySum(a, kTwoOverPi);
  const Num exact = Fused(n.value, -p1, a);
  const Num r = Fused(n.value, -p3, Fused(n.value, -p2, exact));
  const Num low = Fused(n.value, -p2, exact - r);
  return {r, (low + kRound) - kRound, n.low};
}

// a in f32, r in f64, n an i64.
Phase SmallPhaseF64(Num a) {
  const Num wide = a.ToF64();
  const Rounded n = RoundBySum(wide, kTwoOverPi);
  Num r = wide;
  for (double part : kPartsF64) r = MulAdd(n.value, -part, r);
  return {r, r, n.low};
}

Phase SmallPhase(Num a, MathOptions options) {
  if (options.fma) return SmallPhaseFused(a);
  const Phase phase = SmallPhaseF64(a);
  return NarrowPhase(phase.r, phase.n);
}

// sin(quadrants pi / 2 + r + low), with the sign bit `sign` (see SignBit) flipped in.
Num SinOfReduced(const Phase& phase, Num quadrants, Num sign) {
  const Num r = phase.r;
  const Num u = r * r;
  const Num sin = MulAdd(Polynomial(u, poly::kSinF32) * u, r, phase.low) + r;
  const Num cos = MulAdd(Polynomial(u, poly::kCosF32), u, u.Constant(1.0));
  const Num odd = Eq(quadrants & 1, quadrants.Bits(1));
  const Num flip = ((quadrants >> 1) << 31) ^ sign;
  return (Select(odd, cos, sin).AsInt() ^ flip).AsFloat();
}

}  // namespace

Num Sin(Num x, MathOptions options) {
  const Num a = Abs(x);
  const Phase phase = WithLarge(a > kLarge, SmallPhase(a, options), LargePhase, a);
  return SinOfReduced(phase, phase.n, SignBit(x));
}

Num Cos(Num x, MathOptions options) {
  const Num a = Abs(x);
  const Phase phase = WithLarge(a > kLarge, SmallPhase(a, options), LargePhase, a);
  return SinOfReduced(phase, phase.n + phase.n.Bits(1), phase.n.Bits(0));
}

// In f64; -1 / tan r for odd n.
Num Tan(Num x) {
  const Num a = Abs(x);
  const Phase phase = WithLarge(a > kLarge, SmallPhaseF64(a), LargePhaseF64, a);
  const Num u = phase.r * phase.r;
  const Num tan = MulAdd(Polynomial(u, poly::kTanF64) * u, phase.r, phase.r);
  const Num odd = Eq(phase.n & 1, phase.n.Bits(1));
  const Num out = Select(odd, -1.0 / tan, tan).ToF32();
  return (out.AsInt() ^ SignBit(x)).AsFloat();
}

}  // namespace neuron::codegen
