// Attention's kernels for one instruction set; kernels.cmake sets its compiler flags.

#include <initializer_list>

#include "kernels/attention_kernels.h"

namespace neuron::kernels::portable {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_portable.inc"
#include "kernels/philox.inc"
#include "kernels/attention_softmax.inc"
#include "kernels/attention_gradient.inc"
// clang-format on

}  // namespace

const AttentionKernels& GetAttentionKernels() {
  static constexpr AttentionKernels kKernels = {Softmax, Gradient, Scale};
  return kKernels;
}

}  // namespace neuron::kernels::portable
