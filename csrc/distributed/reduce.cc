#include "distributed/reduce.h"

#include <algorithm>
#include <type_traits>

#include "support/error.h"

namespace neuron::distributed {
namespace {

constexpr int64_t kBlock = 1024;  // elements whose accumulators stay in the first-level cache

template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, c10::BFloat16> || std::is_same_v<T, c10::Half>, float, T>;

template <Reduction kReduction, typename A>
A Combine(A a, A b) {
  if constexpr (kReduction == Reduction::kMin || kReduction == Reduction::kMax) {
    if (a != a) return a;  // NaN stays
    if (b != b) return b;
    return (kReduction == Reduction::kMin) == (b < a) ? b : a;
  } else if constexpr (kReduction == Reduction::kProduct) {
    return static_cast<A>(a * b);
  } else if constexpr (kReduction == Reduction::kSum || kReduction == Reduction::kAverage) {
    return static_cast<A>(a + b);
  } else if constexpr (std::is_integral_v<A>) {
    if constexpr (kReduction == Reduction::kAnd) return static_cast<A>(a & b);
    if constexpr (kReduction == Reduction::kOr) return static_cast<A>(a | b);
    if constexpr (kReduction == Reduction::kXor) return static_cast<A>(a ^ b);
  } else {
    return a;  // refused by CheckReduction
  }
}

template <Reduction kReduction, typename T>
void ReduceTyped(double factor, char* out, std::span<const char* const> sources, int64_t count) {
  using A = Accumulator<T>;
  A sums[kBlock];
  const bool scaled = factor != 1;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    for (size_t r = 0; r < sources.size(); ++r) {
      const T* source = reinterpret_cast<const T*>(sources[r]) + begin;
      const auto value = [&](int64_t i) {
        return scaled ? static_cast<A>(static_cast<A>(source[i]) * static_cast<A>(factor))
                      : static_cast<A>(source[i]);
      };
      if (r == 0) {
        for (int64_t i = 0; i < n; ++i) sums[i] = value(i);
      } else {
        for (int64_t i = 0; i < n; ++i) sums[i] = Combine<kReduction, A>(sums[i], value(i));
      }
    }
    T* destination = reinterpret_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kReduction == Reduction::kAverage)
        sums[i] = static_cast<A>(sums[i] / static_cast<A>(sources.size()));
      destination[i] = static_cast<T>(sums[i]);
    }
  }
}

template <typename T>
void ReduceAny(Reduction reduction, double factor, char* out, std::span<const char* const> sources,
               int64_t count) {
  switch (reduction) {
#define NEURON_CASE(name) \
  case Reduction::name:   \
    return ReduceTyped<Reduction::name, T>(factor, out, sources, count);
    NEURON_CASE(kSum)
    NEURON_CASE(kAverage)
    NEURON_CASE(kProduct)
    NEURON_CASE(kMin)
    NEURON_CASE(kMax)
    NEURON_CASE(kAnd)
    NEURON_CASE(kOr)
    NEURON_CASE(kXor)
#undef NEURON_CASE
  }
}

// bool is a byte that must stay 0 or 1: a sum is "or", a product is "and".
Reduction OfBool(Reduction reduction) {
  if (reduction == Reduction::kSum || reduction == Reduction::kMax) return Reduction::kOr;
  if (reduction == Reduction::kProduct || reduction == Reduction::kMin) return Reduction::kAnd;
  return reduction;
}

}  // namespace

const char* Name(Reduction reduction) {
  constexpr const char* kNames[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  return kNames[static_cast<size_t>(reduction)];
}

void CheckReduction(Reduction reduction, c10::ScalarType dtype) {
  const bool bitwise = reduction >= Reduction::kAnd;
  switch (dtype) {
    case c10::ScalarType::Bool:
      if (reduction != Reduction::kAverage) return;
      break;
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Half:
      if (!bitwise) return;
      break;
    case c10::ScalarType::Byte:
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
      return;
    default:
      break;
  }
  NEURON_THROW(kInvalidArgument, "ReduceOp.", Name(reduction), " of ", c10::toString(dtype),
               " is not supported by the backend \"neuron\"");
}

void Reduce(Reduction reduction, c10::ScalarType dtype, double factor, char* out,
            std::span<const char* const> sources, int64_t count) {
  switch (dtype) {
#define NEURON_CASE(name, type) \
  case c10::ScalarType::name:   \
    return ReduceAny<type>(reduction, factor, out, sources, count);
    NEURON_CASE(Float, float)
    NEURON_CASE(Double, double)
    NEURON_CASE(BFloat16, c10::BFloat16)
    NEURON_CASE(Half, c10::Half)
    NEURON_CASE(Byte, uint8_t)
    NEURON_CASE(Char, int8_t)
    NEURON_CASE(Short, int16_t)
    NEURON_CASE(Int, int32_t)
    NEURON_CASE(Long, int64_t)
#undef NEURON_CASE
    case c10::ScalarType::Bool:
      return ReduceAny<uint8_t>(OfBool(reduction), factor, out, sources, count);
    default:
      CheckReduction(reduction, dtype);
  }
}

}  // namespace neuron::distributed
