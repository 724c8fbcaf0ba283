#include "compiler/llvm/math_value.h"

namespace neuron::codegen {

using llvm::Value;

namespace {

bool IsDouble(Num a) { return a.value->getType()->getScalarType()->isDoubleTy(); }
Num Make(Num like, Value* value) { return {like.builder(), value}; }

Num Intrinsic(llvm::Intrinsic::ID id, Num a, Num b, Num c) {
  return Make(a, a.builder().CreateIntrinsic(a.value->getType(), id, {a.value, b.value, c.value}));
}

}  // namespace

llvm::Type* Num::Like(llvm::Type* scalar) const {
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? llvm::FixedVectorType::get(scalar, vector->getNumElements()) : scalar;
}

Num Num::Constant(double c) const { return {*b_, llvm::ConstantFP::get(value->getType(), c)}; }
Num Num::Bits(uint64_t c) const { return {*b_, llvm::ConstantInt::get(value->getType(), c)}; }
Num Num::As(llvm::Type* scalar) const { return {*b_, b_->CreateBitCast(value, Like(scalar))}; }
Num Num::AsInt() const { return As(b_->getIntNTy(value->getType()->getScalarSizeInBits())); }
Num Num::AsFloat() const {
  return As(value->getType()->getScalarSizeInBits() == 64 ? b_->getDoubleTy() : b_->getFloatTy());
}
Num Num::ToF64() const { return {*b_, b_->CreateFPExt(value, Like(b_->getDoubleTy()))}; }
Num Num::ToF32() const { return {*b_, b_->CreateFPTrunc(value, Like(b_->getFloatTy()))}; }

Num operator+(Num a, Num b) {
  return Make(a, a.IsFloat() ? a.builder().CreateFAdd(a.value, b.value)
                             : a.builder().CreateAdd(a.value, b.value));
}
Num operator-(Num a, Num b) {
  return Make(a, a.IsFloat() ? a.builder().CreateFSub(a.value, b.value)
                             : a.builder().CreateSub(a.value, b.value));
}
Num operator*(Num a, Num b) {
  return Make(a, a.IsFloat() ? a.builder().CreateFMul(a.value, b.value)
                             : a.builder().CreateMul(a.value, b.value));
}
Num operator/(Num a, Num b) { return Make(a, a.builder().CreateFDiv(a.value, b.value)); }
Num operator-(Num a) { return Make(a, a.builder().CreateFNeg(a.value)); }
Num operator+(Num a, double c) { return a + a.Constant(c); }
Num operator-(Num a, double c) { return a - a.Constant(c); }
Num operator-(double c, Num a) { return a.Constant(c) - a; }
Num operator*(Num a, double c) { return a * a.Constant(c); }
Num operator/(double c, Num a) { return a.Constant(c) / a; }
Num operator&(Num a, Num b) { return Make(a, a.builder().CreateAnd(a.value, b.value)); }
Num operator|(Num a, Num b) { return Make(a, a.builder().CreateOr(a.value, b.value)); }
Num operator^(Num a, Num b) { return Make(a, a.builder().CreateXor(a.value, b.value)); }
Num operator~(Num a) { return Make(a, a.builder().CreateNot(a.value)); }
Num operator&(Num a, uint64_t c) { return a & a.Bits(c); }
Num operator|(Num a, uint64_t c) { return a | a.Bits(c); }
Num operator<<(Num a, uint64_t count) { return Make(a, a.builder().CreateShl(a.value, count)); }
Num operator>>(Num a, uint64_t count) { return Make(a, a.builder().CreateLShr(a.value, count)); }

Num operator<(Num a, Num b) { return Make(a, a.builder().CreateFCmpOLT(a.value, b.value)); }
Num operator>(Num a, Num b) { return Make(a, a.builder().CreateFCmpOGT(a.value, b.value)); }
Num operator<(Num a, double c) { return a < a.Constant(c); }
Num operator>(Num a, double c) { return a > a.Constant(c); }
Num Eq(Num a, Num b) {
  return Make(a, a.IsFloat() ? a.builder().CreateFCmpOEQ(a.value, b.value)
                             : a.builder().CreateICmpEQ(a.value, b.value));
}
Num Eq(Num a, double c) { return Eq(a, a.Constant(c)); }
Num Ne(Num a, Num b) { return Make(a, a.builder().CreateFCmpUNE(a.value, b.value)); }
Num IsNan(Num a) { return Make(a, a.builder().CreateFCmpUNO(a.value, a.value)); }
Num Select(Num condition, Num a, Num b) {
  return Make(a, a.builder().CreateSelect(condition.value, a.value, b.value));
}

Num MulAdd(Num a, Num b, Num c) { return Intrinsic(llvm::Intrinsic::fmuladd, a, b, c); }
Num MulAdd(Num a, double b, Num c) { return MulAdd(a, a.Constant(b), c); }
Num Fused(Num a, double b, Num c) { return Intrinsic(llvm::Intrinsic::fma, a, a.Constant(b), c); }

Num Polynomial(Num u, std::span<const double> coefficients) {
  Num out = u.Constant(coefficients.back());
  for (size_t k = coefficients.size() - 1; k-- > 0;) {
    out = MulAdd(out, u, u.Constant(coefficients[k]));
  }
  return out;
}

Num Abs(Num a) { return Make(a, a.builder().CreateUnaryIntrinsic(llvm::Intrinsic::fabs, a.value)); }
Num Sqrt(Num a) {
  return Make(a, a.builder().CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, a.value));
}

Num SignBit(Num a) {
  const unsigned bits = a.value->getType()->getScalarSizeInBits();
  return a.AsInt() & (uint64_t{1} << (bits - 1));
}
Num WithSign(Num magnitude, Num sign) { return (magnitude.AsInt() | sign).AsFloat(); }

// In this form the comparison and the selection are one instruction, minps or maxps.
Num AtMost(Num a, double bound) { return Select(a > bound, a.Constant(bound), a); }
Num AtLeast(Num a, double bound) { return Select(a < bound, a.Constant(bound), a); }

namespace {
double Magic(Num a) { return IsDouble(a) ? 0x1.8p52 : 0x1.8p23; }
}  // namespace

Rounded RoundBySum(Num a) {
  const Num sum = a + Magic(a);
  return {sum - Magic(a), sum.AsInt()};
}
Rounded RoundBySum(Num a, double factor) {
  const Num sum = MulAdd(a, factor, a.Constant(Magic(a)));
  return {sum - Magic(a), sum.AsInt()};
}

Num PowerOfTwo(Num low, Num like) {
  return IsDouble(like) ? ((low << 52) + low.Bits(uint64_t{1023} << 52)).AsFloat()
                        : ((low << 23) + low.Bits(uint64_t{127} << 23)).AsFloat();
}

}  // namespace neuron::codegen
