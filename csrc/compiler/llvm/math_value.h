// Arithmetic on LLVM values in the notation of formulas, for math_*.cc.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include <cstdint>
#include <span>

namespace neuron::codegen {

// A scalar or vector of floats, integers or booleans, and the builder that adds to it. Operands
// have one type; a number stands for a constant of the other operand's type.
class Num {
 public:
  Num(llvm::IRBuilderBase& builder, llvm::Value* v) : value(v), b_(&builder) {}

  Num Constant(double c) const;      // of this value's float type
  Num Bits(uint64_t c) const;        // of this value's integer type
  Num As(llvm::Type* scalar) const;  // the same bits as another scalar type of the same size
  Num AsInt() const;                 // the bits of a float
  Num AsFloat() const;               // the float with these bits
  Num ToF64() const;                 // from f32
  Num ToF32() const;                 // from f64, rounded
  llvm::Type* Like(llvm::Type* scalar) const;  // this value's shape with another scalar type
  llvm::IRBuilderBase& builder() const { return *b_; }
  bool IsFloat() const { return value->getType()->isFPOrFPVectorTy(); }

  llvm::Value* value;

 private:
  llvm::IRBuilderBase* b_;
};

Num operator+(Num a, Num b);
Num operator-(Num a, Num b);
Num operator*(Num a, Num b);
Num operator/(Num a, Num b);
Num operator-(Num a);  // floats
Num operator+(Num a, double c);
Num operator-(Num a, double c);
Num operator-(double c, Num a);
Num operator*(Num a, double c);
Num operator/(double c, Num a);
Num operator&(Num a, Num b);
Num operator|(Num a, Num b);
Num operator^(Num a, Num b);
Num operator~(Num a);
Num operator&(Num a, uint64_t c);
Num operator|(Num a, uint64_t c);
Num operator<<(Num a, uint64_t count);
Num operator>>(Num a, uint64_t count);  // logical

// Comparisons are false with NaN, but Ne.
Num operator<(Num a, Num b);
Num operator>(Num a, Num b);
Num operator<(Num a, double c);
Num operator>(Num a, double c);
Num Eq(Num a, double c);
Num Eq(Num a, Num b);
Num Ne(Num a, Num b);
Num IsNan(Num a);
Num Select(Num condition, Num a, Num b);

// a * b + c, fused where the target can; nothing here relies on it being fused.
Num MulAdd(Num a, Num b, Num c);
Num MulAdd(Num a, double b, Num c);
// a * b + c rounded once: a call to libm on targets without FMA.
Num Fused(Num a, double b, Num c);
// coefficients[0] + u * (coefficients[1] + u * ...)
Num Polynomial(Num u, std::span<const double> coefficients);

Num Abs(Num a);
Num Sqrt(Num a);
Num SignBit(Num a);                     // integer: the sign bit alone
Num WithSign(Num magnitude, Num sign);  // `magnitude` >= 0 or NaN, `sign` from SignBit
// The nearer of a and the bound; NaN stays NaN.
Num AtMost(Num a, double bound);
Num AtLeast(Num a, double bound);

// A float rounded to the nearest integer by adding 1.5 * 2^23 (f32) or 2^52 (f64), for |a| below a
// third of that: needs no rounding instruction and gives the integer in the low bits as well.
struct Rounded {
  Num value;  // float
  Num low;    // integer type of the same width; its low 22 (51) bits are those of the integer
};
Rounded RoundBySum(Num a);
Rounded RoundBySum(Num a, double factor);  // of a * factor
// 2^n for the n in `low`'s low bits; n within the normal exponents.
Num PowerOfTwo(Num low, Num like);

}  // namespace neuron::codegen
