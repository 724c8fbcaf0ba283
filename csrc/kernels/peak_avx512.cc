// The peak of one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/peak_kernels.h"

namespace neuron::kernels::avx512 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx512.inc"
// clang-format on

constexpr int64_t kOperations = 2 * kLanes;
inline VF MulAdd(VF sum) { return Fma(sum, Set(0.5f), Set(1.0f)); }

#include "kernels/peak_loop.inc"

}  // namespace

PeakKernel GetPeakKernel() { return Peak; }

}  // namespace neuron::kernels::avx512
