// The peak of one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/peak_kernels.h"

namespace neuron::kernels::avx512_bf16 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx512.inc"
// clang-format on

constexpr int64_t kOperations = 4 * kLanes;
inline VF MulAdd(VF sum) {
  const auto half = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f00));  // 0.5
  return _mm512_dpbf16_ps(sum, half, half);
}

#include "kernels/peak_loop.inc"

}  // namespace

PeakKernel GetPeakKernel() { return Peak; }

}  // namespace neuron::kernels::avx512_bf16
