// Arithmetic and elementary functions, element by element.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

// The result as PyTorch rounds it: first to the common dtype of the operands, then (out=, in-place)
// to the result's.
void ReturnAs(Context& c, Op* value, DType common) { c.Return({c.b.Convert(value, common)}); }

DType Common(Context& c) {
  return ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("other")).Get();
}

template <OpCode kCode>
void LowerBinary(Context& c) {
  const DType common = Common(c);
  ReturnAs(c,
           c.b.Binary(kCode, ToCompute(c, c.T("self"), common), ToCompute(c, c.T("other"), common)),
           common);
}

// Real and imaginary part of a complex operand given as pairs; of a real one itself and 0.
std::pair<Op*, Op*> Parts(Context& c, const TensorArg& tensor, DType part) {
  auto& b = c.b;
  Op* x = tensor.value;
  if (!tensor.is_complex) return {b.Convert(x, part), b.Const(part, 0)};
  const int64_t last = x->type.rank() - 1;
  const Dims dims(x->type.dims.begin(), x->type.dims.end() - 1);
  const auto pick = [&](int64_t i) {
    return b.Convert(b.Reshape(b.Slice(x, last, i, i + 1), dims), part);
  };
  return {pick(0), pick(1)};
}

void ReturnPairs(Context& c, Op* real, Op* imaginary) {
  auto& b = c.b;
  Dims dims = c.Result().dims;
  dims.pop_back();
  Dims pair = dims;
  pair.push_back(1);
  const auto column = [&](Op* x) { return b.Reshape(b.Broadcast(x, dims), pair); };
  c.Return({b.Concatenate({column(real), column(imaginary)}, static_cast<int64_t>(dims.size()))});
}

void LowerMul(Context& c) {
  const TensorArg& x = c.Tensor("self");
  const TensorArg& y = c.Tensor("other");
  if (!x.is_complex && !y.is_complex) return LowerBinary<OpCode::kMultiply>(c);
  auto& b = c.b;
  const DType part = c.Result().dtype;
  const auto [a, p] = Parts(c, x, part);
  const auto [d, q] = Parts(c, y, part);
  ReturnPairs(c, b.Sub(b.Mul(a, d), b.Mul(p, q)), b.Add(b.Mul(a, q), b.Mul(p, d)));
}

// self +- alpha * other, in one rounding.
template <OpCode kCode>
void LowerAddSub(Context& c) {
  const DType common = Common(c);
  Op* other = ToCompute(c, c.T("other"), common);
  if (!c.Is("alpha", 1)) other = c.b.Mul(other, c.S("alpha", other->type.dtype));
  ReturnAs(c, c.b.Binary(kCode, ToCompute(c, c.T("self"), common), other), common);
}

void LowerRsubTensor(Context& c) {
  const DType common = Common(c);
  Op* self = ToCompute(c, c.T("self"), common);
  if (!c.Is("alpha", 1)) self = c.b.Mul(self, c.S("alpha", self->type.dtype));
  ReturnAs(c, c.b.Sub(ToCompute(c, c.T("other"), common), self), common);
}

void LowerRsubScalar(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Scalar("other")).Get();
  Op* self = ToCompute(c, c.T("self"), common);
  if (!c.Is("alpha", 1)) self = c.b.Mul(self, c.S("alpha", self->type.dtype));
  ReturnAs(c, c.b.Sub(c.S("other", self->type.dtype), self), common);
}

// Integers divide as floats of the default dtype.
DType FloatCommon(Context& c, DType common) {
  return IsIntegral(common) ? c.default_float() : common;
}

Op* FloorDivide(Context& c, Op* x, Op* y) {
  auto& b = c.b;
  if (IsIntegral(x->type.dtype)) {
    Op* quotient = b.Div(x, y);
    if (!IsSigned(x->type.dtype)) return quotient;
    Op* zero = b.ConstInt(x->type.dtype, 0);
    Op* inexact = b.Compare("NE", b.Binary(OpCode::kRemainder, x, y), zero);
    Op* differ = b.Compare("LT", b.Binary(OpCode::kXor, x, y), zero);
    Op* adjust = b.Binary(OpCode::kAnd, inexact, differ);
    return b.Sub(quotient, b.Convert(adjust, x->type.dtype));
  }
  // As Python's float floor division: from the remainder, so that the quotient is the floor
  // exactly.
  const DType dtype = x->type.dtype;
  Op* zero = b.Const(dtype, 0);
  Op* mod = b.Binary(OpCode::kRemainder, x, y);
  Op* div = b.Div(b.Sub(x, mod), y);
  Op* nonzero = b.Compare("NE", mod, zero);
  Op* differ = b.Compare("NE", b.Compare("LT", y, zero), b.Compare("LT", mod, zero));
  div = b.Select(b.Binary(OpCode::kAnd, nonzero, differ), b.Add(div, -1), div);
  Op* floor = b.Unary(OpCode::kFloor, div);
  floor = b.Select(b.Compare("GT", b.Sub(div, floor), b.Const(dtype, 0.5)), b.Add(floor, 1), floor);
  Op* ratio = b.Div(x, y);
  Op* signed_zero = b.Mul(ratio, b.Const(dtype, 0));
  Op* result = b.Select(b.Compare("EQ", div, zero), signed_zero, floor);
  return b.Select(b.Compare("EQ", y, zero), ratio, result);
}

void LowerDiv(Context& c) {
  const DType common = FloatCommon(c, Common(c));
  ReturnAs(c, c.b.Div(ToCompute(c, c.T("self"), common), ToCompute(c, c.T("other"), common)),
           common);
}

void LowerDivMode(Context& c) {
  if (!c.Has("rounding_mode")) return LowerDiv(c);
  const std::string mode = c.String("rounding_mode");
  const DType common = Common(c);
  Op* x = ToCompute(c, c.T("self"), common);
  Op* y = ToCompute(c, c.T("other"), common);
  if (mode == "floor") return ReturnAs(c, FloorDivide(c, x, y), common);
  if (mode != "trunc") {
    NEURON_THROW(kInvalidArgument,
                 "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
                 mode, "'");
  }
  Op* quotient = c.b.Div(x, y);
  if (IsIntegral(common)) return ReturnAs(c, quotient, common);
  // PyTorch rounds a bf16 quotient before it is truncated: 17.99 becomes 18.
  quotient = c.b.Convert(c.b.Convert(quotient, common), x->type.dtype);
  ReturnAs(c, c.b.Unary(OpCode::kTrunc, quotient), common);
}

void LowerFloorDivide(Context& c) {
  const DType common = Common(c);
  ReturnAs(c, FloorDivide(c, ToCompute(c, c.T("self"), common), ToCompute(c, c.T("other"), common)),
           common);
}

// Python's modulus: the sign of the divisor.
void LowerRemainder(Context& c) {
  const DType common = Common(c);
  Op* x = ToCompute(c, c.T("self"), common);
  Op* y = ToCompute(c, c.T("other"), common);
  auto& b = c.b;
  Op* mod = b.Binary(OpCode::kRemainder, x, y);
  if (IsIntegral(common) && !IsSigned(common)) return ReturnAs(c, mod, common);
  Op* zero = b.Const(mod->type.dtype, 0);
  Op* nonzero = b.Compare("NE", mod, zero);
  Op* differ = b.Compare("NE", b.Compare("LT", mod, zero), b.Compare("LT", y, zero));
  ReturnAs(c, b.Select(b.Binary(OpCode::kAnd, nonzero, differ), b.Add(mod, y), mod), common);
}

// Integers become floats (result dtype); bf16 and f16 are computed in f32.
template <OpCode kCode>
void LowerFloatUnary(Context& c) {
  const DType common = FloatCommon(c, c.T("self")->type.dtype);
  ReturnAs(c, c.b.Unary(kCode, c.b.Convert(c.T("self"), ComputeType(common))), common);
}

template <OpCode kCode>
void LowerUnary(Context& c) {
  const DType common = c.T("self")->type.dtype;
  ReturnAs(c, c.b.Unary(kCode, c.b.Convert(c.T("self"), ComputeType(common))), common);
}

void LowerReciprocal(Context& c) {
  const DType common = FloatCommon(c, c.T("self")->type.dtype);
  Op* x = c.b.Convert(c.T("self"), ComputeType(common));
  ReturnAs(c, c.b.Div(c.b.Const(x->type.dtype, 1), x), common);
}

void LowerSgn(Context& c) { LowerUnary<OpCode::kSign>(c); }

Op* Power(Context& c, Op* x, std::string_view exponent) {
  auto& b = c.b;
  const DType dtype = x->type.dtype;
  if (c.Is(exponent, 2)) return b.Mul(x, x);
  if (c.Is(exponent, 1)) return x;
  if (c.Is(exponent, 3)) return b.Mul(b.Mul(x, x), x);
  if (!IsIntegral(dtype)) {
    if (c.Is(exponent, 0)) return b.Broadcast(b.Const(dtype, 1), x->type.dims);
    if (c.Is(exponent, 0.5)) return b.Unary(OpCode::kSqrt, x);
    if (c.Is(exponent, -1)) return b.Div(b.Const(dtype, 1), x);
  }
  return b.Binary(OpCode::kPower, x, c.S(exponent, dtype));
}

void LowerPowTensorScalar(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Scalar("exponent")).Get();
  ReturnAs(c, Power(c, ToCompute(c, c.T("self"), common), "exponent"), common);
}

void LowerPowScalar(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Scalar("self")).Add(c.Tensor("exponent")).Get();
  Op* exponent = ToCompute(c, c.T("exponent"), common);
  ReturnAs(c, c.b.Binary(OpCode::kPower, c.S("self", exponent->type.dtype), exponent), common);
}

void LowerPowTensor(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("exponent")).Get();
  ReturnAs(c,
           c.b.Binary(OpCode::kPower, ToCompute(c, c.T("self"), common),
                      ToCompute(c, c.T("exponent"), common)),
           common);
}

void LowerAtan2(Context& c) {
  const DType common = FloatCommon(c, Common(c));
  ReturnAs(c,
           c.b.Binary(OpCode::kAtan2, ToCompute(c, c.T("self"), common),
                      ToCompute(c, c.T("other"), common)),
           common);
}

// NaN in self stays; a NaN bound gives NaN, as PyTorch's clamp.
void LowerClamp(Context& c) {
  ResultType type(c.default_float());
  type.Add(c.Tensor("self"));
  for (const char* name : {"min", "max"}) {
    if (c.Has(name)) type.Add(c.Scalar(name));
  }
  const DType common = type.Get();
  Op* x = ToCompute(c, c.T("self"), common);
  if (c.Has("min")) x = c.b.Max(x, c.S("min", x->type.dtype));
  if (c.Has("max")) x = c.b.Min(x, c.S("max", x->type.dtype));
  ReturnAs(c, x, common);
}

void LowerClampTensor(Context& c) {
  ResultType type(c.default_float());
  type.Add(c.Tensor("self"));
  for (const char* name : {"min", "max"}) {
    if (c.Has(name)) type.Add(c.Tensor(name));
  }
  const DType common = type.Get();
  Op* x = ToCompute(c, c.T("self"), common);
  if (c.Has("min")) x = c.b.Max(x, ToCompute(c, c.T("min"), common));
  if (c.Has("max")) x = c.b.Min(x, ToCompute(c, c.T("max"), common));
  ReturnAs(c, x, common);
}

template <bool kMaximum>
void LowerClampOne(Context& c) {
  const char* name = kMaximum ? "min" : "max";
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Scalar(name)).Get();
  Op* x = ToCompute(c, c.T("self"), common);
  Op* bound = c.S(name, x->type.dtype);
  ReturnAs(c, kMaximum ? c.b.Max(x, bound) : c.b.Min(x, bound), common);
}

template <bool kMaximum>
void LowerClampOneTensor(Context& c) {
  const char* name = kMaximum ? "min" : "max";
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor(name)).Get();
  Op* x = ToCompute(c, c.T("self"), common);
  Op* bound = ToCompute(c, c.T(name), common);
  ReturnAs(c, kMaximum ? c.b.Max(x, bound) : c.b.Min(x, bound), common);
}

// self + value * tensor1 * tensor2 (or / tensor2)
template <bool kDivide>
void LowerAddcmul(Context& c) {
  const DType common = ResultType(c.default_float())
                           .Add(c.Tensor("self"))
                           .Add(c.Tensor("tensor1"))
                           .Add(c.Tensor("tensor2"))
                           .Get();
  Op* x = ToCompute(c, c.T("tensor1"), common);
  Op* y = ToCompute(c, c.T("tensor2"), common);
  auto& b = c.b;
  if (!c.Is("value", 1)) x = b.Mul(x, c.S("value", x->type.dtype));
  ReturnAs(c, b.Add(ToCompute(c, c.T("self"), common), kDivide ? b.Div(x, y) : b.Mul(x, y)),
           common);
}

// start + weight * (end - start), from the nearer end, as PyTorch.
Op* Lerp(Context& c, Op* start, Op* end, Op* weight) {
  auto& b = c.b;
  Op* difference = b.Sub(end, start);
  Op* from_start = b.Add(start, b.Mul(weight, difference));
  Op* rest = b.Sub(b.Const(weight->type.dtype, 1), weight);
  Op* from_end = b.Sub(end, b.Mul(difference, rest));
  Op* small = b.Compare("LT", b.Unary(OpCode::kAbs, weight), b.Const(weight->type.dtype, 0.5));
  return b.Select(small, from_start, from_end);
}

void LowerLerpScalar(Context& c) {
  const DType common = c.T("self")->type.dtype;
  Op* start = ToCompute(c, c.T("self"), common);
  ReturnAs(c, Lerp(c, start, ToCompute(c, c.T("end"), common), c.S("weight", start->type.dtype)),
           common);
}

void LowerLerpTensor(Context& c) {
  const DType common = c.T("self")->type.dtype;
  Op* start = ToCompute(c, c.T("self"), common);
  Op* weight = ToCompute(c, c.T("weight"), common);
  ReturnAs(c, Lerp(c, start, ToCompute(c, c.T("end"), common), weight), common);
}

void LowerRound(Context& c) { LowerUnary<OpCode::kRoundNearestEven>(c); }

void LowerXlogy(Context& c) {
  const DType common = FloatCommon(c, Common(c));
  Op* x = ToCompute(c, c.T("self"), common);
  Op* y = ToCompute(c, c.T("other"), common);
  auto& b = c.b;
  Op* zero = b.Const(x->type.dtype, 0);
  Op* product = b.Select(b.Compare("EQ", x, zero), zero, b.Mul(x, b.Unary(OpCode::kLog, y)));
  ReturnAs(c, b.Select(b.Compare("NE", y, y), y, product), common);
}

}  // namespace

void AddPointwise(Table& t) {
  t.Add("add.Tensor", LowerAddSub<OpCode::kAdd>);
  t.Add("sub.Tensor", LowerAddSub<OpCode::kSubtract>);
  t.Add("rsub.Tensor", LowerRsubTensor);
  t.Add("rsub.Scalar", LowerRsubScalar);
  t.Add("mul.Tensor", LowerMul).complex_as_pairs = true;
  t.Add("div.Tensor", LowerDiv);
  t.Add("div.Tensor_mode", LowerDivMode).aliases = {"div.out_mode"};
  t.Add("floor_divide", LowerFloorDivide).aliases = {"floor_divide_.Tensor"};
  t.Add("remainder.Tensor", LowerRemainder);
  t.Add("fmod.Tensor", LowerBinary<OpCode::kRemainder>);
  t.Add("maximum", LowerBinary<OpCode::kMaximum>);
  t.Add("minimum", LowerBinary<OpCode::kMinimum>);
  t.Add("atan2", LowerAtan2);
  t.Add("xlogy.Tensor", LowerXlogy).aliases = {"xlogy.OutTensor"};
  t.Add("bitwise_and.Tensor", LowerBinary<OpCode::kAnd>);
  t.Add("bitwise_or.Tensor", LowerBinary<OpCode::kOr>);
  t.Add("bitwise_xor.Tensor", LowerBinary<OpCode::kXor>);
  t.Add("bitwise_left_shift.Tensor", LowerBinary<OpCode::kShiftLeft>);
  t.Add("bitwise_right_shift.Tensor", LowerBinary<OpCode::kShiftRightArithmetic>);
  t.Add("bitwise_not", LowerUnary<OpCode::kNot>);
  t.Add("neg", LowerUnary<OpCode::kNegate>);
  t.Add("abs", LowerUnary<OpCode::kAbs>);
  t.Add("sgn", LowerSgn);
  t.Add("sign", LowerSgn);
  t.Add("floor", LowerUnary<OpCode::kFloor>);
  t.Add("ceil", LowerUnary<OpCode::kCeil>);
  t.Add("trunc", LowerUnary<OpCode::kTrunc>);
  t.Add("round", LowerRound);
  t.Add("reciprocal", LowerReciprocal);
  t.Add("sqrt", LowerFloatUnary<OpCode::kSqrt>);
  t.Add("rsqrt", LowerFloatUnary<OpCode::kRsqrt>);
  t.Add("exp", LowerFloatUnary<OpCode::kExp>);
  t.Add("exp2", LowerFloatUnary<OpCode::kExp2>);
  t.Add("expm1", LowerFloatUnary<OpCode::kExpm1>);
  t.Add("log", LowerFloatUnary<OpCode::kLog>);
  t.Add("log2", LowerFloatUnary<OpCode::kLog2>);
  t.Add("log10", LowerFloatUnary<OpCode::kLog10>);
  t.Add("log1p", LowerFloatUnary<OpCode::kLog1p>);
  t.Add("sin", LowerFloatUnary<OpCode::kSin>);
  t.Add("cos", LowerFloatUnary<OpCode::kCos>);
  t.Add("tan", LowerFloatUnary<OpCode::kTan>);
  t.Add("asin", LowerFloatUnary<OpCode::kAsin>);
  t.Add("acos", LowerFloatUnary<OpCode::kAcos>);
  t.Add("atan", LowerFloatUnary<OpCode::kAtan>);
  t.Add("sinh", LowerFloatUnary<OpCode::kSinh>);
  t.Add("cosh", LowerFloatUnary<OpCode::kCosh>);
  t.Add("tanh", LowerFloatUnary<OpCode::kTanh>);
  t.Add("asinh", LowerFloatUnary<OpCode::kAsinh>);
  t.Add("acosh", LowerFloatUnary<OpCode::kAcosh>);
  t.Add("atanh", LowerFloatUnary<OpCode::kAtanh>);
  t.Add("sigmoid", LowerFloatUnary<OpCode::kLogistic>);
  t.Add("erf", LowerFloatUnary<OpCode::kErf>);
  t.Add("erfc", LowerFloatUnary<OpCode::kErfc>);
  t.Add("erfinv", LowerFloatUnary<OpCode::kErfInv>);
  t.Add("lgamma", LowerFloatUnary<OpCode::kLgamma>);
  t.Add("digamma", LowerFloatUnary<OpCode::kDigamma>);
  t.Add("pow.Tensor_Scalar", LowerPowTensorScalar).aliases = {"pow_.Scalar"};
  t.Add("pow.Scalar", LowerPowScalar);
  t.Add("pow.Tensor_Tensor", LowerPowTensor).aliases = {"pow_.Tensor"};
  t.Add("clamp", LowerClamp);
  t.Add("clamp.Tensor", LowerClampTensor);
  t.Add("clamp_min", LowerClampOne<true>);
  t.Add("clamp_max", LowerClampOne<false>);
  t.Add("clamp_min.Tensor", LowerClampOneTensor<true>);
  t.Add("clamp_max.Tensor", LowerClampOneTensor<false>);
  t.Add("addcmul", LowerAddcmul<false>);
  t.Add("addcdiv", LowerAddcmul<true>);
  t.Add("lerp.Scalar", LowerLerpScalar);
  t.Add("lerp.Tensor", LowerLerpTensor);
}

}  // namespace neuron::lowering
