#include "compiler/llvm/math.h"

#include "compiler/llvm/math_functions.h"
#include "compiler/llvm/math_value.h"

namespace neuron::codegen {

using ir::OpCode;
using llvm::Value;

namespace {

// Integers without rounding instructions. Adding and subtracting 2^23 (f64: 2^52) rounds |x| to the
// nearest even integer; from there on, x is one. The sign of x stays, also that of zeros.
Num RoundPortable(OpCode op, Num x) {
  const double big = x.value->getType()->getScalarType()->isDoubleTy() ? 0x1p52 : 0x1p23;
  const Num a = Abs(x);
  const Num sign = SignBit(x);
  const Num nearest = (a + big) - big;
  const Num signed_nearest = WithSign(nearest, sign);
  Num out = nearest;
  if (op == OpCode::kTrunc) out = Select(nearest > a, nearest - 1.0, nearest);
  if (op == OpCode::kFloor) {
    out = Abs(Select(signed_nearest > x, signed_nearest - 1.0, signed_nearest));
  }
  if (op == OpCode::kCeil) {
    out = Abs(Select(signed_nearest < x, signed_nearest + 1.0, signed_nearest));
  }
  return Select(a < big, WithSign(out, sign), x);
}

Value* EmitRounding(llvm::IRBuilderBase& b, OpCode op, Value* x, MathOptions options) {
  if (!options.rounding) return RoundPortable(op, {b, x}).value;
  const auto id = op == OpCode::kFloor   ? llvm::Intrinsic::floor
                  : op == OpCode::kCeil  ? llvm::Intrinsic::ceil
                  : op == OpCode::kTrunc ? llvm::Intrinsic::trunc
                                         : llvm::Intrinsic::roundeven;
  return b.CreateUnaryIntrinsic(id, x);
}

// f32 and f64.
Value* EmitSimple(llvm::IRBuilderBase& b, OpCode op, Value* value, MathOptions options) {
  const Num x(b, value);
  switch (op) {
    case OpCode::kAbs:
      return Abs(x).value;
    case OpCode::kNegate:
      return b.CreateFNeg(value);
    case OpCode::kSign:  // NaN and zeros stay
      return Select(x > 0.0, x.Constant(1.0), Select(x < 0.0, x.Constant(-1.0), x)).value;
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kTrunc:
    case OpCode::kRoundNearestEven:
      return EmitRounding(b, op, value, options);
    case OpCode::kSqrt:
      return Sqrt(x).value;
    case OpCode::kRsqrt:
      return (1.0 / Sqrt(x)).value;
    default:
      return nullptr;
  }
}

}  // namespace

Value* EmitUnaryF32(llvm::IRBuilderBase& b, OpCode op, Value* value, MathOptions options) {
  const Num x(b, value);
  switch (op) {
#define NEURON_UNARY(Function) \
  case OpCode::k##Function:    \
    return Function(x).value;
    NEURON_UNARY(Expm1)
    NEURON_UNARY(Tanh)
    NEURON_UNARY(Sinh)
    NEURON_UNARY(Cosh)
    NEURON_UNARY(Log)
    NEURON_UNARY(Log2)
    NEURON_UNARY(Log10)
    NEURON_UNARY(Log1p)
    NEURON_UNARY(Asinh)
    NEURON_UNARY(Acosh)
    NEURON_UNARY(Atanh)
    NEURON_UNARY(Tan)
    NEURON_UNARY(Asin)
    NEURON_UNARY(Acos)
    NEURON_UNARY(Atan)
    NEURON_UNARY(Erf)
    NEURON_UNARY(Erfc)
    NEURON_UNARY(ErfInv)
#undef NEURON_UNARY
    case OpCode::kExp:
      return Exp(x, options).value;
    case OpCode::kExp2:
      return Exp2(x, options).value;
    case OpCode::kLogistic:
      return Logistic(x, options).value;
    case OpCode::kSin:
      return Sin(x, options).value;
    case OpCode::kCos:
      return Cos(x, options).value;
    default:
      return EmitSimple(b, op, value, options);
  }
}

Value* EmitUnaryF64(llvm::IRBuilderBase& b, OpCode op, Value* x, MathOptions options) {
  return EmitSimple(b, op, x, options);
}

Value* EmitPowF32(llvm::IRBuilderBase& b, Value* x, Value* y) { return Pow({b, x}, {b, y}).value; }

Value* EmitAtan2F32(llvm::IRBuilderBase& b, Value* y, Value* x) {
  return Atan2({b, y}, {b, x}).value;
}

Value* EmitBf16ToF32(llvm::IRBuilderBase& b, Value* bits) {
  const Num narrow(b, bits);
  const Num wide(b, b.CreateZExt(bits, narrow.Like(b.getInt32Ty())));
  return (wide << 16).AsFloat().value;
}

Value* EmitRoundToBf16(llvm::IRBuilderBase& b, Value* value) {
  const Num x(b, value);
  const Num bits = x.AsInt();
  const Num rounded = bits + (((bits >> 16) & 1) + bits.Bits(0x7fff));
  const Num out = Select(IsNan(x), bits.Bits(0x7fc00000), rounded) >> 16;
  return b.CreateTrunc(out.value, x.Like(b.getInt16Ty()));
}

// The first selection is one maxps, which gives y if either is NaN: only NaN in x is left to mend.
Value* EmitMaximum(llvm::IRBuilderBase& b, Value* x_value, Value* y_value) {
  const Num x(b, x_value), y(b, y_value);
  return Select(IsNan(x), x, Select(x > y, x, y)).value;
}

Value* EmitMinimum(llvm::IRBuilderBase& b, Value* x_value, Value* y_value) {
  const Num x(b, x_value), y(b, y_value);
  return Select(IsNan(x), x, Select(x < y, x, y)).value;
}

}  // namespace neuron::codegen
