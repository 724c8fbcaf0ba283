// Attention's kernels for one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include <initializer_list>

#include "kernels/attention_kernels.h"

namespace neuron::kernels::avx512 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx512.inc"
#include "kernels/philox.inc"
#include "kernels/attention_softmax.inc"
#include "kernels/attention_gradient.inc"
// clang-format on

}  // namespace

const AttentionKernels& GetAttentionKernels() {
  static constexpr AttentionKernels kKernels = {Softmax, Gradient, Scale};
  return kKernels;
}

}  // namespace neuron::kernels::avx512
