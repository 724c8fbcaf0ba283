// The functions behind math.h by family. x is f32 and so is the result, unless the name says F64:
// those take and give f64 but are accurate to about 2^-33, enough to round correctly to f32.
#pragma once

#include "compiler/llvm/math.h"
#include "compiler/llvm/math_value.h"

namespace neuron::codegen {

// Exponentials (math_exp.cc)
Num Exp(Num x, MathOptions options);
Num Exp2(Num x, MathOptions options);
Num Expm1(Num x);
Num Logistic(Num x, MathOptions options);
Num Tanh(Num x);
Num Sinh(Num x);
Num Cosh(Num x);
Num Exp2F64(Num x);   // |x| < 1000
Num Expm1F64(Num x);  // |x| < 700
Num ExpF64(Num x);    // |x| < 700
// 2^r for |r| <= 1/2 times 2^n for any n that is in `low` (see Rounded), one rounding to denormals.
Num Scale(Num mantissa, Num low, MathOptions options);

// Logarithms (math_log.cc)
Num Log(Num x);
Num Log2(Num x);
Num Log10(Num x);
Num Log1p(Num x);
Num Asinh(Num x);
Num Acosh(Num x);
Num Atanh(Num x);
Num Pow(Num x, Num y);
// log(1 + x) for x > -1, finite.
Num Log1pF64(Num x);

// Circular functions (math_trig.cc, math_arc.cc)
Num Sin(Num x, MathOptions options);
Num Cos(Num x, MathOptions options);
Num Tan(Num x);
Num Asin(Num x);
Num Acos(Num x);
Num Atan(Num x);
Num Atan2(Num y, Num x);

// Error functions (math_erf.cc)
Num Erf(Num x);
Num Erfc(Num x);
Num ErfInv(Num x);

}  // namespace neuron::codegen
