#include "platform/host/helpers.h"

#include <array>
#include <cmath>
#include <limits>

namespace neuron::host {
namespace {

// lgamma without the global signgam that the C function writes.
template <typename T>
T LogGamma(T x) {
  int sign;
  if constexpr (sizeof(T) == 4) {
    return lgammaf_r(x, &sign);
  } else {
    return lgamma_r(x, &sign);
  }
}

template <typename T>
T Logistic(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// Recurrence up to x >= 10, then the asymptotic series (Abramowitz and Stegun 6.3.18);
// reflection 6.3.7 for x < 0.
template <typename T>
T Digamma(T value) {
  double x = value;
  if (x == 0) return std::copysign(std::numeric_limits<T>::infinity(), static_cast<T>(-x));
  double result = 0;
  if (x < 0) {
    if (x == std::trunc(x)) return std::numeric_limits<T>::quiet_NaN();
    double whole;
    const double fraction = std::modf(x, &whole);
    result = -M_PI / std::tan(M_PI * fraction);
    x = 1 - x;
  }
  for (; x < 10; ++x) result -= 1 / x;
  double series = 0;
  if (x < 1e17) {
    const double z = 1 / (x * x);
    constexpr double kTerms[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                 1.0 / 132, -691.0 / 32760, 1.0 / 12};
    double power = z;
    for (double term : kTerms) {
      series += term * power;
      power *= z;
    }
  }
  return static_cast<T>(result + std::log(x) - 0.5 / x - series);
}

// A closed form to start (S. Winitzki, 2008), then Halley steps on erf until it is exact to double
// precision.
template <typename T>
T ErfInv(T value) {
  const double y = value;
  if (!(std::fabs(y) <= 1)) return std::numeric_limits<T>::quiet_NaN();
  if (std::fabs(y) == 1) return std::copysign(std::numeric_limits<T>::infinity(), value);
  // Winitzki's closed form: relative error below 2e-3, enough for three cubic steps.
  constexpr double kA = 0.147;
  const double l = std::log1p(-y * y);
  const double t = 2 / (M_PI * kA) + l / 2;
  double x = std::copysign(std::sqrt(std::sqrt(t * t - l / kA) - t), y);
  for (int i = 0; i < 3; ++i) {
    // erfc keeps the digits of the tails.
    const double error = y > 0.5    ? (1 - y) - std::erfc(x)
                         : y < -0.5 ? std::erfc(-x) - (1 + y)
                                    : std::erf(x) - y;
    const double step = error / (M_2_SQRTPI * std::exp(-x * x));
    x -= step / (1 + x * step);
  }
  return static_cast<T>(x);
}

constexpr int kSlots = 2 * static_cast<int>(HelperOp::kCount);

template <typename F>
void* Address(F* function) {
  return reinterpret_cast<void*>(function);
}

#define NEURON_UNARY(op, function)                                         \
  table[2 * static_cast<int>(HelperOp::op)] =                              \
      Address<float(float)>([](float x) -> float { return function(x); }); \
  table[2 * static_cast<int>(HelperOp::op) + 1] =                          \
      Address<double(double)>([](double x) -> double { return function(x); })
#define NEURON_BINARY(op, function)                                                           \
  table[2 * static_cast<int>(HelperOp::op)] =                                                 \
      Address<float(float, float)>([](float x, float y) -> float { return function(x, y); }); \
  table[2 * static_cast<int>(HelperOp::op) + 1] =                                             \
      Address<double(double, double)>([](double x, double y) -> double { return function(x, y); })

std::array<void*, kSlots> MakeTable() {
  std::array<void*, kSlots> table{};
  NEURON_UNARY(kExp, std::exp);
  NEURON_UNARY(kExp2, std::exp2);
  NEURON_UNARY(kExpm1, std::expm1);
  NEURON_UNARY(kLog, std::log);
  NEURON_UNARY(kLog2, std::log2);
  NEURON_UNARY(kLog10, std::log10);
  NEURON_UNARY(kLog1p, std::log1p);
  NEURON_UNARY(kSin, std::sin);
  NEURON_UNARY(kCos, std::cos);
  NEURON_UNARY(kTan, std::tan);
  NEURON_UNARY(kAsin, std::asin);
  NEURON_UNARY(kAcos, std::acos);
  NEURON_UNARY(kAtan, std::atan);
  NEURON_UNARY(kSinh, std::sinh);
  NEURON_UNARY(kCosh, std::cosh);
  NEURON_UNARY(kTanh, std::tanh);
  NEURON_UNARY(kAsinh, std::asinh);
  NEURON_UNARY(kAcosh, std::acosh);
  NEURON_UNARY(kAtanh, std::atanh);
  NEURON_UNARY(kLogistic, Logistic);
  NEURON_UNARY(kErf, std::erf);
  NEURON_UNARY(kErfc, std::erfc);
  NEURON_UNARY(kErfInv, ErfInv);
  NEURON_UNARY(kLgamma, LogGamma);
  NEURON_UNARY(kDigamma, Digamma);
  NEURON_BINARY(kRemainder, std::fmod);
  NEURON_BINARY(kPower, std::pow);
  NEURON_BINARY(kAtan2, std::atan2);
  NEURON_BINARY(kNextAfter, std::nextafter);
  return table;
}

#undef NEURON_UNARY
#undef NEURON_BINARY

}  // namespace

void* const* HelperTable() {
  static const std::array<void*, kSlots> table = MakeTable();
  return table.data();
}

}  // namespace neuron::host
