// Elementwise operations. bf16 and f16 are computed in f32 and rounded once.
#include <limits>

#include "compiler/llvm/emit.h"
#include "compiler/llvm/helper_table.h"
#include "compiler/llvm/math.h"
#include "support/error.h"

namespace neuron::codegen {

using ir::OpCode;
using llvm::Value;

namespace {

int WidthOf(const Value* value) {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? static_cast<int>(vector->getNumElements()) : 1;
}

[[noreturn]] void Unsupported(const loop::Inst& inst, DType dtype) {
  NEURON_THROW(kUnsupported, "no code for ", ir::Info(inst.op).name, " of ", Name(dtype));
}

}  // namespace

Value* Emitter::EmitCompute(const loop::Inst& inst) {
  if (inst.op == OpCode::kRngBits) return EmitPhilox(inst);
  std::vector<Value*> args;
  int width = 1;
  for (int operand : inst.operands) {
    args.push_back(Get(operand));
    width = std::max(width, WidthOf(args.back()));
  }
  for (Value*& arg : args) arg = Splat(arg, width);
  const DType dtype = kernel_.insts[inst.operands[0]].dtype;
  switch (inst.op) {
    case OpCode::kConvert:
      return EmitConvert(args[0], dtype, inst.dtype);
    case OpCode::kBitcastConvert:
      return b_.CreateBitCast(args[0], Widened(LaneType(inst.dtype), width));
    case OpCode::kSelect:
      return b_.CreateSelect(args[0], args[1], args[2]);
    case OpCode::kCompare:
      return EmitCompare(inst, dtype, args[0], args[1]);
    case OpCode::kIsNan: {
      Value* x = ToF32(args[0], dtype);
      return IsFloat(dtype) ? b_.CreateFCmpUNO(x, x) : Splat(b_.getFalse(), width);
    }
    default:
      break;
  }
  if (IsComplex(dtype)) Unsupported(inst, dtype);
  if (IsIntegral(dtype)) return EmitInteger(inst, dtype, args);
  if (dtype == DType::kF64) return EmitFloat(inst, args);
  for (Value*& arg : args) arg = ToF32(arg, dtype);
  return FromF32(EmitFloat(inst, args), dtype);
}

// args and result: f32 or f64.
Value* Emitter::EmitFloat(const loop::Inst& inst, std::vector<Value*> args) {
  const bool f64 = args[0]->getType()->getScalarType()->isDoubleTy();
  switch (inst.op) {
    case OpCode::kAdd:
      return b_.CreateFAdd(args[0], args[1]);
    case OpCode::kSubtract:
      return b_.CreateFSub(args[0], args[1]);
    case OpCode::kMultiply:
      return b_.CreateFMul(args[0], args[1]);
    case OpCode::kDivide:
      return b_.CreateFDiv(args[0], args[1]);
    case OpCode::kMaximum:
      return EmitMaximum(b_, args[0], args[1]);
    case OpCode::kMinimum:
      return EmitMinimum(b_, args[0], args[1]);
    case OpCode::kFma:
      // Without the instruction LLVM would call the C library, which generated code cannot.
      if (!target_.math.fma) Unsupported(inst, f64 ? DType::kF64 : DType::kF32);
      return b_.CreateIntrinsic(args[0]->getType(), llvm::Intrinsic::fma, args);
    case OpCode::kPower:
    case OpCode::kAtan2: {
      if (f64) break;
      Value* out = inst.op == OpCode::kPower ? EmitPowF32(b_, args[0], args[1])
                                             : EmitAtan2F32(b_, args[0], args[1]);
      if (out != nullptr) return out;
      break;
    }
    default:
      break;
  }
  if (args.size() == 1) {
    Value* out = f64 ? EmitUnaryF64(b_, inst.op, args[0], target_.math)
                     : EmitUnaryF32(b_, inst.op, args[0], target_.math);
    if (out != nullptr) return out;
  }
  return EmitHelperCall(inst, args);
}

Value* Emitter::EmitHelperCall(const loop::Inst& inst, std::vector<Value*> args) {
  const bool f64 = args[0]->getType()->getScalarType()->isDoubleTy();
  const int index = HelperSlot(inst.op, f64);
  if (index < 0) Unsupported(inst, f64 ? DType::kF64 : DType::kF32);
  auto& context = module_.getContext();
  llvm::Type* ptr = llvm::PointerType::get(context, 0);
  llvm::Type* scalar = args[0]->getType()->getScalarType();
  Value* table = b_.CreateLoad(ptr, function_->getArg(5));
  Value* callee = b_.CreateLoad(ptr, b_.CreateConstGEP1_64(ptr, table, index));
  auto* type =
      llvm::FunctionType::get(scalar, std::vector<llvm::Type*>(args.size(), scalar), false);
  const int width = WidthOf(args[0]);
  if (width == 1) return b_.CreateCall(type, callee, args);
  Value* out = llvm::PoisonValue::get(args[0]->getType());
  for (int k = 0; k < width; ++k) {
    std::vector<Value*> lane;
    for (Value* arg : args) lane.push_back(b_.CreateExtractElement(arg, b_.getInt64(k)));
    out = b_.CreateInsertElement(out, b_.CreateCall(type, callee, lane), b_.getInt64(k));
  }
  return out;
}

Value* Emitter::EmitInteger(const loop::Inst& inst, DType dtype, std::vector<Value*> args) {
  const bool boolean = dtype == DType::kBool;
  const bool is_signed = IsSigned(dtype);
  llvm::Type* type = args[0]->getType();
  Value* zero = llvm::Constant::getNullValue(type);
  switch (inst.op) {
    case OpCode::kAdd:
      return boolean ? b_.CreateOr(args[0], args[1]) : b_.CreateAdd(args[0], args[1]);
    case OpCode::kSubtract:
      return boolean ? b_.CreateXor(args[0], args[1]) : b_.CreateSub(args[0], args[1]);
    case OpCode::kMultiply:
      return boolean ? b_.CreateAnd(args[0], args[1]) : b_.CreateMul(args[0], args[1]);
    case OpCode::kDivide:
    case OpCode::kRemainder:
      return EmitIntegerDivision(inst, dtype, args[0], args[1]);
    case OpCode::kPower:
      return EmitIntegerPower(args[0], args[1]);
    case OpCode::kMaximum:
    case OpCode::kMinimum: {
      Value* greater =
          is_signed ? b_.CreateICmpSGT(args[0], args[1]) : b_.CreateICmpUGT(args[0], args[1]);
      return inst.op == OpCode::kMaximum ? b_.CreateSelect(greater, args[0], args[1])
                                         : b_.CreateSelect(greater, args[1], args[0]);
    }
    case OpCode::kAnd:
      return b_.CreateAnd(args[0], args[1]);
    case OpCode::kOr:
      return b_.CreateOr(args[0], args[1]);
    case OpCode::kXor:
      return b_.CreateXor(args[0], args[1]);
    case OpCode::kNot:
      return b_.CreateNot(args[0]);
    case OpCode::kNegate:
      return boolean ? args[0] : b_.CreateNeg(args[0]);
    case OpCode::kAbs:
      return is_signed
                 ? b_.CreateSelect(b_.CreateICmpSLT(args[0], zero), b_.CreateNeg(args[0]), args[0])
                 : args[0];
    case OpCode::kSign: {
      Value* positive = b_.CreateZExt(b_.CreateICmpNE(args[0], zero), type);
      if (!is_signed) return positive;
      Value* minus_one = llvm::Constant::getAllOnesValue(type);
      return b_.CreateSelect(b_.CreateICmpSLT(args[0], zero), minus_one, positive);
    }
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kTrunc:
    case OpCode::kRoundNearestEven:
      return args[0];
    case OpCode::kShiftLeft:
    case OpCode::kShiftRightArithmetic:
    case OpCode::kShiftRightLogical: {
      const unsigned bits = type->getScalarSizeInBits();
      Value* last = llvm::ConstantInt::get(type, bits - 1);
      Value* in_range = b_.CreateICmpULE(args[1], last);
      if (inst.op == OpCode::kShiftRightArithmetic) {
        return b_.CreateAShr(args[0], b_.CreateSelect(in_range, args[1], last));
      }
      Value* count = b_.CreateSelect(in_range, args[1], zero);
      Value* shifted = inst.op == OpCode::kShiftLeft ? b_.CreateShl(args[0], count)
                                                     : b_.CreateLShr(args[0], count);
      return b_.CreateSelect(in_range, shifted, zero);
    }
    default:
      Unsupported(inst, dtype);
  }
}

// Division by zero fails the launch (as PyTorch does); -1 as divisor is a negation, which cannot
// trap.
Value* Emitter::EmitIntegerDivision(const loop::Inst& inst, DType dtype, Value* a, Value* b) {
  llvm::Type* type = a->getType();
  Value* zero = llvm::Constant::getNullValue(type);
  const int width = WidthOf(a);
  Value* is_zero = b_.CreateICmpEQ(b, zero);
  FailIf(is_zero, Splat(I64(0), 1), I64(0), 2);
  Value* one = llvm::ConstantInt::get(type, 1);
  const bool divide = inst.op == OpCode::kDivide;
  // Masked lanes may hold zeros.
  if (lanes_.mask != nullptr && width > 1) b = b_.CreateSelect(is_zero, one, b);
  if (!IsSigned(dtype)) return divide ? b_.CreateUDiv(a, b) : b_.CreateURem(a, b);
  Value* minus_one = llvm::Constant::getAllOnesValue(type);
  Value* negates = b_.CreateICmpEQ(b, minus_one);
  Value* divisor = b_.CreateSelect(negates, one, b);
  if (divide) return b_.CreateSelect(negates, b_.CreateNeg(a), b_.CreateSDiv(a, divisor));
  return b_.CreateSelect(negates, zero, b_.CreateSRem(a, divisor));
}

// Square and multiply over the exponent's bits; a negative exponent gives 1/base truncated, as
// PyTorch.
Value* Emitter::EmitIntegerPower(Value* base, Value* exponent) {
  llvm::Type* type = base->getType();
  Value* zero = llvm::Constant::getNullValue(type);
  Value* one = llvm::ConstantInt::get(type, 1);
  Value* negative = b_.CreateICmpSLT(exponent, zero);
  Value* count = b_.CreateSelect(negative, zero, exponent);
  const int bits = static_cast<int>(type->getScalarSizeInBits());
  const Values result =
      Loop(I64(0), I64(bits), 1, {one, base, count}, [&](Value*, const Values& state) {
        Value* odd = b_.CreateICmpNE(b_.CreateAnd(state[2], one), zero);
        Value* product = b_.CreateSelect(odd, b_.CreateMul(state[0], state[1]), state[0]);
        return Values{product, b_.CreateMul(state[1], state[1]), b_.CreateLShr(state[2], one)};
      });
  Value* minus_one = llvm::Constant::getAllOnesValue(type);
  Value* odd = b_.CreateICmpNE(b_.CreateAnd(exponent, one), zero);
  Value* inverse = b_.CreateSelect(b_.CreateICmpEQ(base, one), one,
                                   b_.CreateSelect(b_.CreateICmpEQ(base, minus_one),
                                                   b_.CreateSelect(odd, minus_one, one), zero));
  return b_.CreateSelect(negative, inverse, result[0]);
}

Value* Emitter::EmitCompare(const loop::Inst& inst, DType dtype, Value* a, Value* b) {
  using P = llvm::CmpInst::Predicate;
  const std::string& d = inst.detail;
  P predicate;
  if (IsFloat(dtype)) {
    a = ToF32(a, dtype);
    b = ToF32(b, dtype);
    predicate = d == "EQ"   ? P::FCMP_OEQ
                : d == "NE" ? P::FCMP_UNE
                : d == "LT" ? P::FCMP_OLT
                : d == "LE" ? P::FCMP_OLE
                : d == "GT" ? P::FCMP_OGT
                            : P::FCMP_OGE;
    return b_.CreateFCmp(predicate, a, b);
  }
  const bool s = IsSigned(dtype);
  predicate = d == "EQ"   ? P::ICMP_EQ
              : d == "NE" ? P::ICMP_NE
              : d == "LT" ? (s ? P::ICMP_SLT : P::ICMP_ULT)
              : d == "LE" ? (s ? P::ICMP_SLE : P::ICMP_ULE)
              : d == "GT" ? (s ? P::ICMP_SGT : P::ICMP_UGT)
                          : (s ? P::ICMP_SGE : P::ICMP_UGE);
  return b_.CreateICmp(predicate, a, b);
}

// bf16 and f16 to f32; f32 and f64 as they are.
Value* Emitter::ToF32(Value* value, DType from) {
  if (from == DType::kBF16) return EmitBf16ToF32(b_, value);
  if (from == DType::kF16) return b_.CreateFPExt(value, Widened(b_.getFloatTy(), WidthOf(value)));
  return value;
}

Value* Emitter::FromF32(Value* value, DType to) {
  if (to == DType::kBF16) return EmitRoundToBf16(b_, value);
  if (to == DType::kF16) return b_.CreateFPTrunc(value, Widened(b_.getHalfTy(), WidthOf(value)));
  return value;
}

Value* Emitter::EmitConvert(Value* value, DType from, DType to) {
  if (from == to) return value;
  NEURON_CHECK(!IsComplex(from) && !IsComplex(to), "conversion of complex values");
  const int width = WidthOf(value);
  llvm::Type* f32 = Widened(b_.getFloatTy(), width);
  if (IsFloat(from)) {
    value = ToF32(value, from);
    if (to == DType::kBool)
      return b_.CreateFCmpUNE(value, llvm::Constant::getNullValue(value->getType()));
    if (to == DType::kF64)
      return from == DType::kF64 ? value : b_.CreateFPExt(value, Widened(b_.getDoubleTy(), width));
    if (IsFloat(to)) {
      if (from == DType::kF64) value = b_.CreateFPTrunc(value, f32);
      return FromF32(value, to);
    }
    // As x86 converts: through a wider signed integer, so that -1.0 to u8 wraps as in PyTorch.
    const bool wide = ByteSize(to) == 8 || to == DType::kU32;
    llvm::Type* through = Widened(wide ? b_.getInt64Ty() : b_.getInt32Ty(), width);
    value = b_.CreateFreeze(b_.CreateFPToSI(value, through));
    return b_.CreateZExtOrTrunc(value, Widened(LaneType(to), width));
  }
  if (to == DType::kBool)
    return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
  if (IsFloat(to)) {
    llvm::Type* type = to == DType::kF64 ? Widened(b_.getDoubleTy(), width) : f32;
    value = IsSigned(from) ? b_.CreateSIToFP(value, type) : b_.CreateUIToFP(value, type);
    return FromF32(value, to);
  }
  llvm::Type* type = Widened(LaneType(to), width);
  return IsSigned(from) ? b_.CreateSExtOrTrunc(value, type) : b_.CreateZExtOrTrunc(value, type);
}

// Philox 4x32-10: J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
// Operands: seed, offset, element index.
Value* Emitter::EmitPhilox(const loop::Inst& inst) {
  Value* seed = Get(inst.operands[0]);
  Value* counter = b_.CreateAdd(Splat(Get(inst.operands[1]), WidthOf(Get(inst.operands[2]))),
                                Get(inst.operands[2]));
  const int width = WidthOf(counter);
  llvm::Type* i32 = Widened(b_.getInt32Ty(), width);
  llvm::Type* i64 = Widened(b_.getInt64Ty(), width);
  const auto low = [&](Value* x) { return b_.CreateTrunc(x, i32); };
  const auto high = [&](Value* x) { return b_.CreateTrunc(b_.CreateLShr(x, 32), i32); };
  seed = Splat(seed, width);
  Value* key[2] = {low(seed), high(seed)};
  Value* zero = llvm::Constant::getNullValue(i32);
  Value* state[4] = {low(counter), high(counter), zero, zero};
  for (int round = 0; round < 10; ++round) {
    const auto multiply = [&](Value* x, uint32_t m) {
      return b_.CreateMul(b_.CreateZExt(x, i64), llvm::ConstantInt::get(i64, m));
    };
    Value* p0 = multiply(state[0], 0xD2511F53u);
    Value* p1 = multiply(state[2], 0xCD9E8D57u);
    Value* next[4] = {b_.CreateXor(b_.CreateXor(high(p1), state[1]), key[0]), low(p1),
                      b_.CreateXor(b_.CreateXor(high(p0), state[3]), key[1]), low(p0)};
    std::copy(next, next + 4, state);
    key[0] = b_.CreateAdd(key[0], llvm::ConstantInt::get(i32, 0x9E3779B9u));
    key[1] = b_.CreateAdd(key[1], llvm::ConstantInt::get(i32, 0xBB67AE85u));
  }
  const int word = inst.detail.empty() ? -1 : inst.detail[0] - '0';
  NEURON_CHECK(word >= 0 && word < 4, "rng word '", inst.detail, "'");
  return state[word];
}

}  // namespace neuron::codegen
