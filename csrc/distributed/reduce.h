// Sums and other reductions over the buffers of several ranks.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <span>

namespace neuron::distributed {

enum class Reduction { kSum, kAverage, kProduct, kMin, kMax, kAnd, kOr, kXor };

const char* Name(Reduction reduction);

// out[i] = reduction over sources[r][i] in the order of the sources, for i < count. bfloat16 and
// float16 are accumulated in float32. factor multiplies each source first (1: nothing); count is in
// elements. out may be one of the sources. Throws kInvalidArgument for dtypes that do not have the
// reduction.
void Reduce(Reduction reduction, c10::ScalarType dtype, double factor, char* out,
            std::span<const char* const> sources, int64_t count);
// Throws as Reduce would.
void CheckReduction(Reduction reduction, c10::ScalarType dtype);

}  // namespace neuron::distributed
