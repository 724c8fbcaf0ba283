// Reductions: accumulators per lane, combined across lanes by halving, so the order is fixed.
#include <limits>

#include "compiler/llvm/emit.h"
#include "compiler/llvm/math.h"
#include "support/error.h"

namespace neuron::codegen {

using llvm::Value;

namespace {
bool IsArg(const loop::Inst& inst) { return inst.detail == "argmax" || inst.detail == "argmin"; }
}  // namespace

std::vector<int> Emitter::ReductionsOf(int stage) const {
  std::vector<int> out;
  for (int id = 0; id < static_cast<int>(kernel_.insts.size()); ++id) {
    if (kernel_.insts[id].kind == loop::Kind::kReduce && ready_[id] == stage + 1) out.push_back(id);
  }
  return out;
}

int Emitter::AccumulatorsOf(const loop::Inst& inst) const { return IsArg(inst) ? 2 : 1; }

Emitter::Values Emitter::Identity(const loop::Inst& inst, int width) {
  const DType dtype = kernel_.insts[inst.operands[0]].dtype;
  llvm::Type* type = LaneType(dtype);
  llvm::Constant* value = nullptr;
  const bool maximum = inst.detail == "maximum" || inst.detail == "argmax";
  const bool minimum = inst.detail == "minimum" || inst.detail == "argmin";
  if (IsFloat(dtype)) {
    NEURON_CHECK(dtype == DType::kF32 || dtype == DType::kF64, "reduction of ", Name(dtype));
    if (inst.detail == "add") value = llvm::ConstantFP::get(type, -0.0);
    if (inst.detail == "multiply") value = llvm::ConstantFP::get(type, 1.0);
    if (maximum || minimum) value = llvm::ConstantFP::getInfinity(type, maximum);
  } else {
    const unsigned bits = type->getIntegerBitWidth();
    const bool is_signed = IsSigned(dtype);
    if (inst.detail == "add" || inst.detail == "or") value = llvm::ConstantInt::get(type, 0);
    if (inst.detail == "multiply") value = llvm::ConstantInt::get(type, 1);
    if (inst.detail == "and") value = llvm::Constant::getAllOnesValue(type);
    if (maximum) {
      value = llvm::ConstantInt::get(
          type, is_signed ? llvm::APInt::getSignedMinValue(bits) : llvm::APInt::getMinValue(bits));
    }
    if (minimum) {
      value = llvm::ConstantInt::get(
          type, is_signed ? llvm::APInt::getSignedMaxValue(bits) : llvm::APInt::getMaxValue(bits));
    }
  }
  NEURON_CHECK(value != nullptr, "reduction '", inst.detail, "' of ", Name(dtype));
  Values out{Splat(value, width)};
  if (IsArg(inst)) out.push_back(Splat(I64(std::numeric_limits<int64_t>::max()), width));
  return out;
}

Emitter::Values Emitter::Accumulate(const loop::Inst& inst, const Values& acc) {
  const int width =
      acc[0]->getType()->isVectorTy()
          ? static_cast<int>(llvm::cast<llvm::FixedVectorType>(acc[0]->getType())->getNumElements())
          : 1;
  Values next;
  for (int operand : inst.operands) next.push_back(Splat(Get(operand), width));
  if (lanes_.mask != nullptr && width > 1 && kernel_.reduced[kernel_.vector_dim]) {
    const Values identity = Identity(inst, width);
    for (size_t k = 0; k < next.size(); ++k)
      next[k] = b_.CreateSelect(lanes_.mask, next[k], identity[k]);
  }
  return Combine(inst, acc, next);
}

Emitter::Values Emitter::Combine(const loop::Inst& inst, const Values& a, const Values& b) {
  const DType dtype = kernel_.insts[inst.operands[0]].dtype;
  const std::string& kind = inst.detail;
  const bool fp = IsFloat(dtype);
  const bool is_signed = IsSigned(dtype);
  if (kind == "add") {
    if (dtype == DType::kBool) return {b_.CreateOr(a[0], b[0])};
    return {fp ? b_.CreateFAdd(a[0], b[0]) : b_.CreateAdd(a[0], b[0])};
  }
  if (kind == "multiply") {
    if (dtype == DType::kBool) return {b_.CreateAnd(a[0], b[0])};
    return {fp ? b_.CreateFMul(a[0], b[0]) : b_.CreateMul(a[0], b[0])};
  }
  if (kind == "and") return {b_.CreateAnd(a[0], b[0])};
  if (kind == "or") return {b_.CreateOr(a[0], b[0])};
  if (kind == "maximum" || kind == "minimum") {
    const bool maximum = kind == "maximum";
    if (fp) return {maximum ? EmitMaximum(b_, a[0], b[0]) : EmitMinimum(b_, a[0], b[0])};
    Value* greater = is_signed ? b_.CreateICmpSGT(a[0], b[0]) : b_.CreateICmpUGT(a[0], b[0]);
    return {maximum ? b_.CreateSelect(greater, a[0], b[0]) : b_.CreateSelect(greater, b[0], a[0])};
  }
  NEURON_CHECK(IsArg(inst), "reduction '", kind, "'");
  // b wins if it is further, or if it is equally far and comes first. NaN is the furthest.
  const bool maximum = kind == "argmax";
  Value *further, *equal;
  if (fp) {
    Value* nan_a = b_.CreateFCmpUNO(a[0], a[0]);
    Value* nan_b = b_.CreateFCmpUNO(b[0], b[0]);
    Value* beyond = maximum ? b_.CreateFCmpOGT(b[0], a[0]) : b_.CreateFCmpOLT(b[0], a[0]);
    further = b_.CreateOr(beyond, b_.CreateAnd(nan_b, b_.CreateNot(nan_a)));
    equal = b_.CreateOr(b_.CreateFCmpOEQ(a[0], b[0]), b_.CreateAnd(nan_a, nan_b));
  } else {
    Value* x = maximum ? b[0] : a[0];
    Value* y = maximum ? a[0] : b[0];
    further = is_signed ? b_.CreateICmpSGT(x, y) : b_.CreateICmpUGT(x, y);
    equal = b_.CreateICmpEQ(a[0], b[0]);
  }
  Value* wins = b_.CreateOr(further, b_.CreateAnd(equal, b_.CreateICmpSLT(b[1], a[1])));
  return {b_.CreateSelect(wins, b[0], a[0]), b_.CreateSelect(wins, b[1], a[1])};
}

Emitter::Values Emitter::Horizontal(const loop::Inst& inst, Values acc, int width) {
  for (int half = width / 2; half >= 1; half /= 2) {
    llvm::SmallVector<int, 64> low, high;
    for (int k = 0; k < half; ++k) {
      low.push_back(k);
      high.push_back(k + half);
    }
    Values a, b;
    for (Value* value : acc) {
      a.push_back(b_.CreateShuffleVector(value, low));
      b.push_back(b_.CreateShuffleVector(value, high));
    }
    acc = Combine(inst, a, b);
  }
  if (width > 1) {
    for (Value*& value : acc) value = b_.CreateExtractElement(value, b_.getInt64(0));
  }
  return acc;
}

}  // namespace neuron::codegen
