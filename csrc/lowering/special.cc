// Elementwise functions that are a few IR ops each, and losses, which reduce such a function.
#include <cmath>
#include <numeric>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

using Function = Op* (*)(Context&, Op* x);
using Function2 = Op* (*)(Context&, Op* x, Op* y);

// One operand; integers become floats of the default dtype if kFloat, else keep their dtype.
template <Function kFunction, bool kFloat = false>
void LowerOne(Context& c) {
  DType dtype = c.T("self")->type.dtype;
  if (kFloat && IsIntegral(dtype)) dtype = c.default_float();
  Op* x = c.b.Convert(c.T("self"), ComputeType(dtype));
  c.Return({c.b.Convert(kFunction(c, x), dtype)});
}

template <Function2 kFunction>
void LowerTwo(Context& c) {
  DType common = ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("other")).Get();
  if (IsIntegral(common)) common = c.default_float();
  Op* y = ToCompute(c, c.T("other"), common);
  c.Return({c.b.Convert(kFunction(c, ToCompute(c, c.T("self"), common), y), common)});
}

// +inf or -inf of a float dtype.
Op* Infinity(Context& c, DType dtype, bool positive) { return c.b.Limit(dtype, positive); }

Op* IsInfinite(Context& c, Op* x) {
  return c.b.Compare("EQ", c.b.Unary(OpCode::kAbs, x), Infinity(c, x->type.dtype, true));
}

// log(base^x + base^y) without overflow; equal infinities stay.
Op* LogAddExp(Context& c, Op* x, Op* y, OpCode exp, double log_base) {
  auto& b = c.b;
  const DType dtype = x->type.dtype;
  Op* distance = b.Unary(OpCode::kAbs, b.Sub(x, y));
  Op* rest = b.Unary(OpCode::kLog1p, b.Unary(exp, b.Unary(OpCode::kNegate, distance)));
  if (log_base != 1) rest = b.Div(rest, b.Const(dtype, log_base));
  Op* sum = b.Add(b.Max(x, y), rest);
  Op* same = b.Binary(OpCode::kAnd, IsInfinite(c, x), b.Compare("EQ", x, y));
  return b.Select(same, x, sum);
}
Op* LogAddExpE(Context& c, Op* x, Op* y) { return LogAddExp(c, x, y, OpCode::kExp, 1); }
Op* LogAddExp2(Context& c, Op* x, Op* y) { return LogAddExp(c, x, y, OpCode::kExp2, M_LN2); }

Op* Elu(Context& c, Op* x) {
  auto& b = c.b;
  const DType dtype = x->type.dtype;
  Op* curve = b.Unary(OpCode::kExpm1, b.Mul(x, c.S("input_scale", dtype)));
  Op* negative = b.Mul(b.Mul(curve, c.S("alpha", dtype)), c.S("scale", dtype));
  return b.Select(b.Compare("LT", x, b.Const(dtype, 0)), negative, b.Mul(x, c.S("scale", dtype)));
}

Op* SixthOfClamped(Context& c, Op* x) {  // min(max(x + 3, 0), 6)
  auto& b = c.b;
  return b.Min(b.Max(b.Add(x, 3), b.Const(x->type.dtype, 0)), b.Const(x->type.dtype, 6));
}
Op* HardSigmoid(Context& c, Op* x) {
  return c.b.Div(SixthOfClamped(c, x), c.b.Const(x->type.dtype, 6));
}
Op* HardSwish(Context& c, Op* x) {
  return c.b.Div(c.b.Mul(x, SixthOfClamped(c, x)), c.b.Const(x->type.dtype, 6));
}

Op* HardTanh(Context& c, Op* x) {
  const DType dtype = x->type.dtype;
  return c.b.Min(c.b.Max(x, c.S("min_val", dtype)), c.S("max_val", dtype));
}

Op* SoftShrink(Context& c, Op* x) {
  auto& b = c.b;
  const DType dtype = x->type.dtype;
  Op* lambd = c.S("lambd", dtype);
  // What is neither above nor below becomes 0 but keeps NaN.
  Op* inner = b.Mul(x, 0.0);
  Op* below = b.Select(b.Compare("LT", x, b.Unary(OpCode::kNegate, lambd)), b.Add(x, lambd), inner);
  return b.Select(b.Compare("GT", x, lambd), b.Sub(x, lambd), below);
}

Op* Threshold(Context& c, Op* x) {
  const DType dtype = x->type.dtype;
  return c.b.Select(c.b.Compare("LE", x, c.S("threshold", dtype)), c.S("value", dtype), x);
}

Op* Frac(Context& c, Op* x) { return c.b.Sub(x, c.b.Unary(OpCode::kTrunc, x)); }

template <bool kPositive>
void LowerIsInfinity(Context& c) {
  Op* x = c.T("self");
  if (IsIntegral(x->type.dtype)) return c.Return({c.b.ConstInt(DType::kBool, 0)});
  x = c.b.Convert(x, ComputeType(x->type.dtype));
  c.Return({c.b.Compare("EQ", x, Infinity(c, x->type.dtype, kPositive))});
}

// The sum or mean (in the compute type) of an elementwise loss, or the loss itself.
void ReturnLoss(Context& c, Op* loss, DType dtype) {
  auto& b = c.b;
  const int64_t reduction = c.Int("reduction");
  if (reduction == 0) return c.Return({b.Convert(loss, dtype)});
  Dims all(loss->type.dims.size());
  std::iota(all.begin(), all.end(), 0);
  const int64_t count = loss->type.NumElements();
  loss = b.Convert(b.Convert(loss, dtype), ComputeType(dtype));
  Op* sum = b.Reduce(loss, "add", all);
  if (reduction == 1) sum = b.Div(sum, b.Shape(sum->type.dtype, count));
  c.Return({b.Convert(sum, dtype)});
}

using LossFunction = Op* (*)(Context&, Op* distance);

// A function of self - target.
template <LossFunction kFunction>
void LowerLoss(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("target")).Get();
  Op* target = ToCompute(c, c.T("target"), common);
  Op* distance = c.b.Sub(ToCompute(c, c.T("self"), common), target);
  ReturnLoss(c, kFunction(c, distance), common);
}

Op* Square(Context& c, Op* x) { return c.b.Mul(x, x); }

Op* SmoothL1(Context& c, Op* x) {
  auto& b = c.b;
  Op* beta = c.S("beta", x->type.dtype);
  Op* z = b.Unary(OpCode::kAbs, x);
  Op* near = b.Div(b.Mul(b.Mul(z, z), 0.5), beta);
  return b.Select(b.Compare("LT", z, beta), near, b.Sub(z, b.Mul(beta, 0.5)));
}

Op* Huber(Context& c, Op* x) {
  auto& b = c.b;
  Op* delta = c.S("delta", x->type.dtype);
  Op* z = b.Unary(OpCode::kAbs, x);
  Op* far = b.Mul(delta, b.Sub(z, b.Mul(delta, 0.5)));
  return b.Select(b.Compare("LE", z, delta), b.Mul(b.Mul(z, z), 0.5), far);
}

}  // namespace

void AddSpecial(Table& t) {
  t.Add("logaddexp", LowerTwo<LogAddExpE>);
  t.Add("logaddexp2", LowerTwo<LogAddExp2>);
  t.Add("elu", LowerOne<Elu>);
  t.Add("hardsigmoid", LowerOne<HardSigmoid>);
  t.Add("hardswish", LowerOne<HardSwish>);
  t.Add("hardtanh", LowerOne<HardTanh>);
  t.Add("softshrink", LowerOne<SoftShrink>);
  t.Add("threshold", LowerOne<Threshold>);
  t.Add("frac", LowerOne<Frac>);
  t.Add("isposinf", LowerIsInfinity<true>);
  t.Add("isneginf", LowerIsInfinity<false>);
  t.Add("mse_loss", LowerLoss<Square>);
  t.Add("smooth_l1_loss", LowerLoss<SmoothL1>);
  t.Add("huber_loss", LowerLoss<Huber>);
}

}  // namespace neuron::lowering
