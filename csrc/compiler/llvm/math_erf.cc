// Error functions.
#include <limits>

#include "compiler/llvm/math_functions.h"
#include "compiler/llvm/math_polynomials.h"

namespace neuron::codegen {

namespace {
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
}  // namespace

// An odd polynomial, and 1 - 2^P(|x|) where |x| > 1: there an error of P counts for a fifth or
// less. It is 1 from 3.92 on.
Num Erf(Num x) {
  const Num a = AtMost(Abs(x), 4.0);
  const Num u = a * a;
  const Num small = MulAdd(Polynomial(u, poly::kErfF32), a, a);
  const Num exponent = Polynomial(a, poly::kErfTailF32);
  const Rounded n = RoundBySum(exponent);
  const Num r = exponent - n.value;
  const Num power = MulAdd(Polynomial(r, poly::kExp2F32), r, r.Constant(1.0));
  const Num large = 1.0 - power * PowerOfTwo(n.low, x);
  return WithSign(Select(a < 1.0, small, large), SignBit(x));
}

// e^(-x^2) P(3 / (3 + |x|)) in f64. It rounds to 0 from 10.06 on.
Num Erfc(Num x) {
  const Num a = AtMost(Abs(x), 10.5).ToF64();
  const Num u = 3.0 / (a + 3.0);
  const Num upper = Polynomial(u, poly::kErfcF64) * ExpF64(-(a * a));
  return Select(x.ToF64() < 0.0, 2.0 - upper, upper).ToF32();
}

// x P(-log(1 - x^2)) in f64. x^2 is exact.
Num ErfInv(Num x) {
  const Num a = Abs(x).ToF64();
  const Num u = -Log1pF64(-(a * a));
  const Num tail = Polynomial(Sqrt(u), poly::kErfInvTailF64);
  const Num out = (Select(u > 6.0, tail, Polynomial(u, poly::kErfInvF64)) * a).ToF32();
  const Num magnitude = Abs(x);
  const Num edge = Select(Eq(magnitude, 1.0), x.Constant(kInfinity), x.Constant(kNan));
  return WithSign(Select(magnitude < 1.0, out, edge), SignBit(x));
}

}  // namespace neuron::codegen
