// Inverse circular functions, in f64.
#include "compiler/llvm/math_functions.h"
#include "compiler/llvm/math_polynomials.h"

namespace neuron::codegen {

namespace {

constexpr double kPi = 3.141592653589793;

// atan(a) for 0 <= a <= 1.
Num AtanOfReduced(Num a) {
  const Num u = a * a;
  return MulAdd(Polynomial(u, poly::kAtanF64) * u, a, a);
}

struct ArcSine {
  Num large;  // |x| > 1/2
  Num angle;  // asin |x|, or where large asin(sqrt((1 - |x|) / 2)) = acos(|x|) / 2
};

ArcSine ArcSineOf(Num magnitude) {
  const Num large = magnitude > 0.5;
  const Num u = Select(large, (1.0 - magnitude) * 0.5, magnitude * magnitude);
  const Num root = Select(large, Sqrt(u), magnitude);
  return {large, MulAdd(Polynomial(u, poly::kAsinF64) * u, root, root)};
}

}  // namespace

Num Asin(Num x) {
  const ArcSine arc = ArcSineOf(Abs(x).ToF64());
  const Num out = Select(arc.large, kPi / 2 - arc.angle * 2.0, arc.angle);
  return WithSign(out.ToF32(), SignBit(x));
}

Num Acos(Num x) {
  const Num xd = x.ToF64();
  const ArcSine arc = ArcSineOf(Abs(xd));
  const Num negative = xd < 0.0;
  const Num twice = arc.angle * 2.0;
  const Num large = Select(negative, kPi - twice, twice);
  const Num small = Select(negative, arc.angle + kPi / 2, kPi / 2 - arc.angle);
  return Select(arc.large, large, small).ToF32();
}

Num Atan(Num x) {
  const Num a = Abs(x).ToF64();
  const Num large = a > 1.0;
  const Num angle = AtanOfReduced(Select(large, 1.0 / a, a));
  return WithSign(Select(large, kPi / 2 - angle, angle).ToF32(), SignBit(x));
}

Num Atan2(Num y, Num x) {
  llvm::IRBuilderBase& b = x.builder();
  const Num ay = Abs(y).ToF64();
  const Num ax = Abs(x).ToF64();
  const Num steep = ay > ax;
  const Num low = Select(steep, ax, ay);
  const Num high = Select(steep, ay, ax);
  // Equal: also 0 / 0, whose angle is 0, and infinity / infinity, whose angle is that of 1.
  const Num one = Select(Eq(high, 0.0), high, high.Constant(1.0));
  const Num angle = AtanOfReduced(Select(Eq(low, high), one, low / high));
  const Num first = Select(steep, kPi / 2 - angle, angle);
  const Num backward = {b, b.CreateICmpNE(SignBit(x).value, SignBit(x).Bits(0).value)};
  return WithSign(Select(backward, kPi - first, first).ToF32(), SignBit(y));
}

}  // namespace neuron::codegen
