// Random numbers: Philox 4x32-10, one counter per element, so the numbers do not depend on threads,
// layout or fusion.
#include <cmath>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Op* Bits(Context& c, const Dims& dims, int64_t word) {
  return c.b.graph().Add(OpCode::kRngBits, {DType::kU32, dims}, {c.seed(), c.offset()},
                         {{"word", word}});
}

// Uniform in [0, 1): the top 24 bits of one word for f32, 53 of two for f64.
Op* Uniform(Context& c, DType compute, const Dims& dims, int64_t word) {
  auto& b = c.b;
  const auto shift = [&](Op* x, int64_t bits) {
    return b.Binary(OpCode::kShiftRightLogical, x, b.ConstInt(DType::kU32, bits));
  };
  if (compute == DType::kF64) {
    Op* high = b.Convert(shift(Bits(c, dims, word), 5), compute);
    Op* low = b.Convert(shift(Bits(c, dims, word + 1), 6), compute);
    return b.Mul(b.Add(b.Mul(high, 0x1p26), low), 0x1p-53);
  }
  return b.Mul(b.Convert(b.Convert(shift(Bits(c, dims, word), 8), DType::kI32), compute), 0x1p-24);
}

DType RandomType(Context& c) { return ComputeType(c.Result().dtype); }

void LowerUniform(Context& c) {
  auto& b = c.b;
  const DType type = RandomType(c);
  Op* from = c.S("from", type);
  Op* u = Uniform(c, type, c.Result().dims, 0);
  c.Return({b.Add(b.Mul(u, b.Sub(c.S("to", type), from)), from)});
}

// G. Box and M. Muller, "A note on the generation of random normal deviates", 1958.
Op* Normal(Context& c, DType type) {
  auto& b = c.b;
  const Dims& dims = c.Result().dims;
  // 1 - u is in (0, 1], so its logarithm is finite.
  Op* positive = b.Sub(b.Const(type, 1), Uniform(c, type, dims, 0));
  Op* radius = b.Unary(OpCode::kSqrt, b.Mul(b.Unary(OpCode::kLog, positive), -2));
  Op* angle = b.Mul(Uniform(c, type, dims, type == DType::kF64 ? 2 : 1), 2 * M_PI);
  Op* normal = b.Mul(radius, b.Unary(OpCode::kCos, angle));
  return b.Add(b.Mul(normal, c.S("std", type)), c.S("mean", type));
}
void LowerNormal(Context& c) { c.Return({Normal(c, RandomType(c))}); }
void LowerLogNormal(Context& c) { c.Return({c.b.Unary(OpCode::kExp, Normal(c, RandomType(c)))}); }

void LowerBernoulli(Context& c) {
  Op* u = Uniform(c, DType::kF64, c.Result().dims, 0);
  c.Return({c.b.Compare("LT", u, c.S("p", DType::kF64))});
}

// Each element of self is the probability of its 1.
void LowerBernoulliOf(Context& c, const char* probabilities) {
  Op* u = Uniform(c, DType::kF64, c.Result().dims, 0);
  Op* p = c.b.Broadcast(c.b.Convert(c.T(probabilities), DType::kF64), c.Result().dims);
  c.Return({c.b.Compare("LT", u, p)});
}
void LowerBernoulliSelf(Context& c) { LowerBernoulliOf(c, "self"); }
void LowerBernoulliTensor(Context& c) { LowerBernoulliOf(c, "p"); }

// -log(1 - u) / lambd, by inversion.
void LowerExponential(Context& c) {
  auto& b = c.b;
  const DType type = RandomType(c);
  Op* positive = b.Sub(b.Const(type, 1), Uniform(c, type, c.Result().dims, 0));
  Op* log = b.Unary(OpCode::kLog, positive);
  c.Return({b.Div(b.Unary(OpCode::kNegate, log), c.S("lambd", type))});
}

// By inversion, as the two below.
void LowerCauchy(Context& c) {
  auto& b = c.b;
  const DType type = RandomType(c);
  Op* angle = b.Mul(b.Add(Uniform(c, type, c.Result().dims, 0), -0.5), M_PI);
  Op* tangent = b.Unary(OpCode::kTan, angle);
  c.Return({b.Add(b.Mul(tangent, c.S("sigma", type)), c.S("median", type))});
}

// The number of trials up to the first success: ceil(log(1 - u) / log(1 - p)), at least 1.
void LowerGeometric(Context& c) {
  auto& b = c.b;
  const DType type = DType::kF64;
  Op* positive = b.Sub(b.Const(type, 1), Uniform(c, type, c.Result().dims, 0));
  Op* failure = b.Unary(OpCode::kLog1p, b.Unary(OpCode::kNegate, c.S("p", type)));
  Op* trials = b.Div(b.Unary(OpCode::kLog, positive), failure);
  c.Return({b.Max(b.Unary(OpCode::kCeil, trials), b.Const(type, 1))});
}

// Integers from `base`, `range` of them (0: all 2^64). The bias is at most range / 2^32 for ranges
// below 2^32, which take one word, and range / 2^64 above.
void LowerInteger(Context& c) {
  auto& b = c.b;
  const DType type = DType::kU64;
  const Dims& dims = c.Result().dims;
  const int64_t range = c.Int("range");
  Op* bits = b.Convert(Bits(c, dims, 0), type);
  Op* count = b.ConstInt(type, 32);
  if (range > 0 && range < int64_t{1} << 32) {
    bits = b.Binary(OpCode::kShiftRightLogical, b.Mul(bits, b.Shape(type, range)), count);
  } else {
    Op* high = b.Binary(OpCode::kShiftLeft, b.Convert(Bits(c, dims, 1), type), count);
    bits = b.Binary(OpCode::kOr, high, bits);
    if (range != 0) bits = b.Binary(OpCode::kRemainder, bits, b.Shape(type, range));
  }
  c.Return({b.Add(b.Convert(bits, DType::kI64), b.Shape(DType::kI64, c.Int("base")))});
}

// The input times 1 / (1 - p) where kept, times 0 elsewhere (so that NaN stays), and what is kept.
void LowerDropout(Context& c) {
  auto& b = c.b;
  const DType type = RandomType(c);
  const Dims& dims = c.Result().dims;
  Op* one = b.Const(type, 1);
  if (c.Has("train") && !c.Bool("train")) {
    return c.Return({c.T("input"), b.Broadcast(b.ConstInt(DType::kBool, 1), dims)});
  }
  Op* keep = b.Sub(one, c.S("p", type));
  Op* kept = b.Compare("LT", Uniform(c, type, dims, 0), keep);
  Op* zero = b.Const(type, 0);
  Op* scale = b.Select(b.Compare("EQ", keep, zero), zero, b.Div(one, keep));
  Op* factor = b.Select(kept, b.Broadcast(scale, dims), b.Broadcast(zero, dims));
  c.Return({b.Mul(b.Convert(c.T("input"), type), factor), kept});
}

}  // namespace

void AddRandom(Table& t) {
  // What csrc/aten/random.cc checks first.
  const auto add = [&](const char* name, LowerFn lower) {
    Entry& entry = t.Add(name, lower);
    entry.random = true;
    entry.called = true;
  };
  add("uniform_", LowerUniform);
  add("normal_", LowerNormal);
  add("bernoulli_.float", LowerBernoulli);
  add("exponential_", LowerExponential);
  add("cauchy_", LowerCauchy);
  add("log_normal_", LowerLogNormal);
  add("geometric_", LowerGeometric);
  add("neuron::integers_", LowerInteger);
  t.Add("bernoulli_.Tensor", LowerBernoulliTensor).random = true;
  t.Add("bernoulli", LowerBernoulliSelf).random = true;
  t.Add("native_dropout", LowerDropout).random = true;
}

}  // namespace neuron::lowering
