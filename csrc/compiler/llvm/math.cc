#include "compiler/llvm/math.h"

namespace neuron::codegen {

using ir::OpCode;
using llvm::Value;

namespace {

llvm::Type* Like(const Value* value, llvm::Type* scalar) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

Value* EmitSimple(llvm::IRBuilderBase& b, OpCode op, Value* x) {
  llvm::Type* type = x->getType();
  Value* one = llvm::ConstantFP::get(type, 1.0);
  Value* zero = llvm::ConstantFP::get(type, 0.0);
  switch (op) {
    case OpCode::kAbs:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x);
    case OpCode::kNegate:
      return b.CreateFNeg(x);
    case OpCode::kSign: {
      Value* sign = b.CreateSelect(b.CreateFCmpOLT(x, zero), llvm::ConstantFP::get(type, -1.0), x);
      return b.CreateSelect(b.CreateFCmpOGT(x, zero), one, sign);  // NaN and zeros stay
    }
    case OpCode::kFloor:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::floor, x);
    case OpCode::kCeil:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::ceil, x);
    case OpCode::kTrunc:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x);
    case OpCode::kRoundNearestEven:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x);
    case OpCode::kSqrt:
      return b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x);
    case OpCode::kRsqrt:
      return b.CreateFDiv(one, b.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x));
    default:
      return nullptr;
  }
}

}  // namespace

Value* EmitUnaryF32(llvm::IRBuilderBase& b, OpCode op, Value* x) { return EmitSimple(b, op, x); }
Value* EmitUnaryF64(llvm::IRBuilderBase& b, OpCode op, Value* x) { return EmitSimple(b, op, x); }
Value* EmitPowF32(llvm::IRBuilderBase& b, Value* x, Value* y) {
  (void)b, (void)x, (void)y;
  return nullptr;
}
Value* EmitAtan2F32(llvm::IRBuilderBase& b, Value* x, Value* y) {
  (void)b, (void)x, (void)y;
  return nullptr;
}

Value* EmitBf16ToF32(llvm::IRBuilderBase& b, Value* bits) {
  llvm::Type* i32 = Like(bits, b.getInt32Ty());
  return b.CreateBitCast(b.CreateShl(b.CreateZExt(bits, i32), 16), Like(bits, b.getFloatTy()));
}

// Nearest even by integer arithmetic; NaN becomes 0x7fc0, as c10::BFloat16.
Value* EmitRoundToBf16(llvm::IRBuilderBase& b, Value* x) {
  llvm::Type* i32 = Like(x, b.getInt32Ty());
  llvm::Type* i16 = Like(x, b.getInt16Ty());
  Value* bits = b.CreateBitCast(x, i32);
  Value* odd = b.CreateAnd(b.CreateLShr(bits, 16), llvm::ConstantInt::get(i32, 1));
  Value* rounded = b.CreateAdd(bits, b.CreateAdd(odd, llvm::ConstantInt::get(i32, 0x7fff)));
  Value* nan = b.CreateFCmpUNO(x, x);
  rounded = b.CreateSelect(nan, llvm::ConstantInt::get(i32, 0x7fc00000), rounded);
  return b.CreateTrunc(b.CreateLShr(rounded, 16), i16);
}

// The first comparison fails for NaN in x, the second catches NaN in y.
Value* EmitMaximum(llvm::IRBuilderBase& b, Value* x, Value* y) {
  Value* larger = b.CreateSelect(b.CreateFCmpOGT(x, y), x, y);
  return b.CreateSelect(b.CreateFCmpUNO(x, x), x, larger);
}

Value* EmitMinimum(llvm::IRBuilderBase& b, Value* x, Value* y) {
  Value* smaller = b.CreateSelect(b.CreateFCmpOLT(x, y), x, y);
  return b.CreateSelect(b.CreateFCmpUNO(x, x), x, smaller);
}

}  // namespace neuron::codegen
