// Special functions of f32 and f64. M. Abramowitz and I. Stegun, "Handbook of mathematical
// functions", is cited as A&S.
#include <bit>
#include <cmath>
#include <iterator>
#include <numbers>

#include "ir/stablehlo_decompose.h"

namespace neuron::ir::hlo {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Shorthand on top of Builder: numbers take the shape and dtype of their partner.
struct Math {
  Builder& b;
  Op* Num(double value, const Op* like) { return b.Const(like->type.dtype, value); }
  Op* Add(Op* x, double y) { return b.Add(x, Num(y, x)); }
  Op* Mul(Op* x, double y) { return b.Mul(x, Num(y, x)); }
  Op* From(double x, Op* y) { return b.Sub(b.Broadcast(Num(x, y), y->type.dims), y); }
  Op* Over(double x, Op* y) { return b.Div(b.Broadcast(Num(x, y), y->type.dims), y); }
  Op* Is(const char* direction, Op* x, double y) { return b.Compare(direction, x, Num(y, x)); }
  Op* Is(const char* direction, Op* x, Op* y) { return b.Compare(direction, x, y); }
  Op* If(Op* condition, Op* x, Op* y) { return b.Select(condition, x, y); }
  Op* If(Op* condition, double x, Op* y) { return b.Select(condition, Num(x, y), y); }
  Op* Do(OpCode code, Op* x) { return b.Unary(code, x); }
  Op* Sqrt(Op* x) { return Do(OpCode::kSqrt, x); }
  Op* Log(Op* x) { return Do(OpCode::kLog, x); }
  Op* Abs(Op* x) { return Do(OpCode::kAbs, x); }
  Op* Neg(Op* x) { return Do(OpCode::kNegate, x); }
  Op* Exp(Op* x) { return Do(OpCode::kExp, x); }
  Op* Atan2(Op* y, Op* x) { return b.Binary(OpCode::kAtan2, y, x); }
  // |x| with the sign of y, 0 and -0 included.
  Op* WithSign(Op* x, Op* y) {
    const bool wide = y->type.dtype == DType::kF64;
    Op* bits = b.graph().Add(OpCode::kBitcastConvert,
                             {wide ? DType::kI64 : DType::kI32, y->type.dims}, {y});
    Op* negative = b.Compare("LT", bits, b.ConstInt(bits->type.dtype, 0));
    Op* magnitude = Abs(x);
    return If(negative, Neg(magnitude), magnitude);
  }
  // (1 - x)(1 + x), which keeps the digits of 1 - x^2 near 1.
  Op* OneMinusSquare(Op* x) { return b.Mul(From(1, x), Add(x, 1)); }

  Op* Erf(Op* x);
  Op* Erfc(Op* x);
  Op* ErfInv(Op* y);
  Op* Lgamma(Op* x);
  Op* Digamma(Op* x);
  Op* Asinh(Op* x);
  Op* Acosh(Op* x);
  Op* Sinh(Op* x);

 private:
  Op* SmallErf(Op* x);
  Op* TailErfc(Op* magnitude);
  Op* Stirling(Op* x);
};

// Taylor's series (A&S 7.1.5) for |x| < 1: the term after the last is below 2^-54.
Op* Math::SmallErf(Op* x) {
  constexpr int kTerms = 19;
  double terms[kTerms];
  double factorial = 1;
  for (int n = 0; n < kTerms; ++n) {
    terms[n] = std::numbers::inv_sqrtpi * 2 * (n % 2 == 0 ? 1 : -1) / (factorial * (2 * n + 1));
    factorial *= n + 1;
  }
  Op* u = b.Mul(x, x);
  Op* sum = b.Broadcast(Num(terms[kTerms - 1], x), x->type.dims);
  for (int n = kTerms - 2; n >= 0; --n) sum = Add(b.Mul(sum, u), terms[n]);
  return b.Mul(sum, x);
}

// For x >= 0: (1 + 2x) e^(x^2) erfc(x) as a Chebyshev series in (x - 3.75) / (x + 3.75). M.
// Shepherd and J. Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", 1981, have
// the form; the coefficients are its cosine sums at 64 nodes, in arithmetic of 50 digits.
Op* Math::TailErfc(Op* x) {
  constexpr double kSeries[] = {
      1.177578934567401754,      -4.590054580646477331e-3,  -8.424913336651791558e-2,
      5.92099399981918905e-2,    -2.665866843530575228e-2,  9.074997670705265094e-3,
      -2.413163540417608191e-3,  4.907758365258086323e-4,   -6.916973302501206367e-5,
      4.139027986073010168e-6,   7.740383066198490669e-7,   -2.188640104923439566e-7,
      1.076499946567091038e-8,   4.521959811218286898e-9,   -7.754400208831351104e-10,
      -6.318088340886684468e-11, 2.868795010930669924e-11,  1.94558685457773726e-13,
      -9.654696748433436397e-13, 3.252548148148764631e-14,  3.347811948286829864e-14,
      -1.864562880419071627e-15, -1.250795053068626664e-15, 7.418235256647490578e-17};
  constexpr double kFold = 3.75;
  constexpr double kLast = 28;  // erfc is 0 from 27.3 on, in f64
  Op* at = b.Min(x, b.Broadcast(Num(kLast, x), x->type.dims));
  Op* t = b.Div(Add(at, -kFold), Add(at, kFold));
  Op* twice = Mul(t, 2);
  // C. Clenshaw's recurrence.
  Op* next = b.Broadcast(Num(0, x), x->type.dims);
  Op* after = next;
  for (int k = static_cast<int>(std::size(kSeries)) - 1; k >= 1; --k) {
    Op* current = Add(b.Sub(b.Mul(twice, next), after), kSeries[k]);
    after = next;
    next = current;
  }
  Op* sum = Add(b.Sub(b.Mul(t, next), after), kSeries[0]);
  Op* tail = b.Div(b.Mul(sum, Exp(Neg(b.Mul(at, at)))), Add(Mul(at, 2), 1));
  return If(Is("GT", x, kLast), 0.0, tail);
}

Op* Math::Erf(Op* x) {
  Op* magnitude = Abs(x);
  Op* large = WithSign(From(1, TailErfc(magnitude)), x);
  return If(Is("LT", magnitude, 1), SmallErf(x), large);
}

Op* Math::Erfc(Op* x) {
  Op* magnitude = Abs(x);
  Op* tail = TailErfc(magnitude);
  Op* large = If(Is("LT", x, 0.0), From(2, tail), tail);
  return If(Is("LT", magnitude, 0.5), From(1, SmallErf(x)), large);
}

// S. Winitzki's closed form (2008), then Halley's steps on erf; erfc keeps the digits of the tails.
Op* Math::ErfInv(Op* y) {
  constexpr double kA = 0.147;
  Op* magnitude = Abs(y);
  Op* l = Do(OpCode::kLog1p, Neg(b.Mul(magnitude, magnitude)));
  Op* t = Add(Mul(l, 0.5), 2 / (kPi * kA));
  Op* x = Sqrt(b.Sub(Sqrt(b.Sub(b.Mul(t, t), Mul(l, 1 / kA))), t));
  for (int step = 0; step < 3; ++step) {
    Op* error =
        If(Is("GT", magnitude, 0.5), b.Sub(From(1, magnitude), Erfc(x)), b.Sub(Erf(x), magnitude));
    Op* slope = Mul(Exp(Neg(b.Mul(x, x))), 2 * std::numbers::inv_sqrtpi);
    Op* newton = b.Div(error, slope);
    x = b.Sub(x, b.Div(newton, Add(b.Mul(x, newton), 1)));
  }
  Op* edge = b.Select(Is("EQ", magnitude, 1), Num(kInfinity, y), Num(kNan, y));
  // Where y is so small that its square is 0, the slope at 0 says all.
  Op* small = Is("LT", magnitude, 1e-6);
  x = If(small, Mul(magnitude, 0.5 / std::numbers::inv_sqrtpi), x);
  return WithSign(If(Is("LT", magnitude, 1), x, edge), y);
}

// A&S 6.1.41, for x >= 8.
Op* Math::Stirling(Op* x) {
  constexpr double kTerms[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                               1.0 / 1188, -691.0 / 360360, 1.0 / 156};
  Op* inverse = Over(1, x);
  Op* square = b.Mul(inverse, inverse);
  Op* sum = b.Broadcast(Num(kTerms[std::size(kTerms) - 1], x), x->type.dims);
  for (size_t i = std::size(kTerms) - 1; i-- > 0;) sum = Add(b.Mul(sum, square), kTerms[i]);
  Op* log = Log(x);
  Op* main = b.Mul(x, Add(log, -1));
  return b.Add(b.Add(b.Sub(main, Mul(log, 0.5)), Num(0.5 * std::log(2 * kPi), x)),
               b.Mul(sum, inverse));
}

// The recurrence up to 8 (A&S 6.1.15), reflection below 1/2 (6.1.17).
Op* Math::Lgamma(Op* x) {
  constexpr int kSteps = 8;
  Op* reflected = Is("LT", x, 0.5);
  Op* z = If(reflected, From(1, x), x);
  Op* product = b.Broadcast(Num(1, x), x->type.dims);
  Op* shifted = z;
  for (int i = 0; i < kSteps; ++i) {
    Op* small = Is("LT", shifted, kSteps);
    product = If(small, b.Mul(product, shifted), product);
    shifted = If(small, Add(shifted, 1), shifted);
  }
  Op* positive = b.Sub(Stirling(shifted), Log(product));
  // Exactly 0 at 1 and 2, infinite where x is.
  positive = If(b.Binary(OpCode::kOr, Is("EQ", z, 1), Is("EQ", z, 2)), 0.0, positive);
  positive = If(Is("EQ", z, kInfinity), kInfinity, positive);
  Op* distance = Abs(b.Sub(x, Do(OpCode::kRoundNearestEven, x)));  // exact
  Op* sine = Do(OpCode::kSin, Mul(distance, kPi));
  Op* mirror = b.Sub(From(std::log(kPi), Log(sine)), positive);
  mirror = If(Is("EQ", distance, 0.0), kInfinity, mirror);
  Op* out = If(reflected, mirror, positive);
  return If(Is("EQ", Abs(x), kInfinity), kInfinity, out);
}

// A&S 6.3.18 from 10 on, the recurrence 6.3.5 up to there, reflection 6.3.7 below 0.
Op* Math::Digamma(Op* x) {
  constexpr int kSteps = 10;
  constexpr double kTerms[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                               1.0 / 132, -691.0 / 32760, 1.0 / 12};
  Op* negative = Is("LT", x, 0.0);
  Op* z = If(negative, From(1, x), x);
  Op* sum = b.Broadcast(Num(0, x), x->type.dims);
  for (int i = 0; i < kSteps; ++i) {
    Op* small = Is("LT", z, kSteps);
    sum = If(small, b.Sub(sum, Over(1, z)), sum);
    z = If(small, Add(z, 1), z);
  }
  Op* inverse = Over(1, z);
  Op* square = b.Mul(inverse, inverse);
  Op* series = b.Broadcast(Num(kTerms[std::size(kTerms) - 1], x), x->type.dims);
  for (size_t i = std::size(kTerms) - 1; i-- > 0;) series = Add(b.Mul(series, square), kTerms[i]);
  Op* out = b.Sub(b.Sub(b.Add(sum, Log(z)), Mul(inverse, 0.5)), b.Mul(series, square));
  Op* whole = Do(OpCode::kRoundNearestEven, x);
  Op* fraction = b.Sub(x, whole);
  Op* mirror = Over(-kPi, Do(OpCode::kTan, Mul(fraction, kPi)));
  out = If(negative, b.Add(out, mirror), out);
  out = If(b.Binary(OpCode::kAnd, negative, Is("EQ", fraction, 0.0)), kNan, out);
  Op* pole = Neg(WithSign(b.Broadcast(Num(kInfinity, x), x->type.dims), x));
  return If(Is("EQ", x, 0.0), pole, out);
}

// sign(x) log(|x| + sqrt(x^2 + 1)), as log1p where that is small, without squares where it is
// large.
Op* Math::Asinh(Op* x) {
  Op* a = Abs(x);
  Op* square = b.Mul(a, a);
  Op* root = Sqrt(Add(square, 1));
  Op* usual = Do(OpCode::kLog1p, b.Add(a, b.Div(square, Add(root, 1))));
  Op* large = Add(Log(a), std::numbers::ln2);
  return WithSign(If(Is("GT", a, 1e9), large, usual), x);
}

Op* Math::Acosh(Op* x) {
  Op* y = Add(x, -1);
  Op* usual = Do(OpCode::kLog1p, b.Add(y, Sqrt(b.Mul(y, Add(y, 2)))));
  return If(Is("GT", x, 1e9), Add(Log(x), std::numbers::ln2), usual);
}

// (e - 1 + (e - 1) / e) / 2 with e = e^|x|: no cancellation near 0; e^(x/2) twice for large x.
Op* Math::Sinh(Op* x) {
  Op* a = Abs(x);
  Op* minus = Do(OpCode::kExpm1, a);
  Op* small = Mul(b.Add(minus, b.Div(minus, Add(minus, 1))), 0.5);
  Op* half = Exp(Mul(a, 0.5));
  Op* large = b.Mul(Mul(half, 0.5), half);
  return WithSign(If(Is("GT", a, 20), large, small), x);
}

Op* Cosh(Math m, Op* x) {
  Op* half = m.Exp(m.Mul(m.Abs(x), 0.5));
  Op* large = m.b.Mul(m.Mul(half, 0.5), half);
  Op* e = m.Exp(m.Abs(x));
  Op* small = m.Mul(m.b.Add(e, m.Over(1, e)), 0.5);
  return m.If(m.Is("GT", m.Abs(x), 20), large, small);
}

// Floats in the order of their bits, the sign apart, are in the order of their values.
Op* NextAfter(Builder& b, Op* from, Op* to) {
  const DType dtype = from->type.dtype;
  const DType bits = dtype == DType::kF64   ? DType::kI64
                     : dtype == DType::kF32 ? DType::kI32
                                            : DType::kI16;
  const Dims& dims = from->type.dims;
  const auto as_bits = [&](Op* x) {
    return b.graph().Add(OpCode::kBitcastConvert, {bits, dims}, {x});
  };
  const auto number = [&](int64_t n) { return b.Broadcast(b.ConstInt(bits, n), dims); };
  const int64_t sign = bits == DType::kI64   ? std::numeric_limits<int64_t>::min()
                       : bits == DType::kI32 ? std::numeric_limits<int32_t>::min()
                                             : std::numeric_limits<int16_t>::min();
  Op* zero = b.Broadcast(b.Const(dtype, 0), dims);
  Op* away = b.Compare("EQ", b.Compare("LT", from, to), b.Compare("GT", from, zero));
  Op* moved = b.Add(as_bits(from), b.Select(away, number(1), number(-1)));
  Op* smallest =
      b.Binary(OpCode::kOr, b.Binary(OpCode::kAnd, as_bits(to), number(sign)), number(1));
  moved = b.Select(b.Compare("EQ", from, zero), smallest, moved);
  Op* out = b.graph().Add(OpCode::kBitcastConvert, from->type, {moved});
  out = b.Select(b.Compare("EQ", from, to), to, out);
  Op* nan = b.Binary(OpCode::kOr, b.Compare("NE", from, from), b.Compare("NE", to, to));
  return b.Select(nan, b.Const(dtype, kNan), out);
}

}  // namespace

Op* DecomposeFunction(Builder& b, const Op& op, const std::vector<Op*>& operands) {
  Math m{b};
  Op* x = operands[0];
  Op* one = b.Broadcast(m.Num(1, x), x->type.dims);
  switch (op.code) {
    case OpCode::kExp2:
      return b.Binary(OpCode::kPower, b.Broadcast(m.Num(2, x), x->type.dims), x);
    case OpCode::kLog2:
      return m.Mul(m.Log(x), std::numbers::log2e);
    case OpCode::kLog10:
      return m.Mul(m.Log(x), std::numbers::log10e);
    case OpCode::kAsin:
      return m.Atan2(x, m.Sqrt(m.OneMinusSquare(x)));
    case OpCode::kAcos:
      return m.Atan2(m.Sqrt(m.OneMinusSquare(x)), x);
    case OpCode::kAtan:
      return m.Atan2(x, one);
    case OpCode::kSinh:
      return m.Sinh(x);
    case OpCode::kCosh:
      return Cosh(m, x);
    case OpCode::kAsinh:
      return m.Asinh(x);
    case OpCode::kAcosh:
      return m.Acosh(x);
    case OpCode::kAtanh:
      return m.Mul(b.Sub(m.Do(OpCode::kLog1p, x), m.Do(OpCode::kLog1p, m.Neg(x))), 0.5);
    case OpCode::kErf:
      return m.Erf(x);
    case OpCode::kErfc:
      return m.Erfc(x);
    case OpCode::kErfInv:
      return m.ErfInv(x);
    case OpCode::kLgamma:
      return m.Lgamma(x);
    case OpCode::kDigamma:
      return m.Digamma(x);
    case OpCode::kNextAfter:
      return NextAfter(b, x, operands[1]);
    default:
      NEURON_THROW(kInternal, Info(op.code).name, " is no function with a definition here");
  }
}

}  // namespace neuron::ir::hlo
