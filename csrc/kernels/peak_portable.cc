// The peak of one instruction set; kernels.cmake sets its compiler flags.
#include "kernels/peak_kernels.h"

namespace neuron::kernels::portable {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_portable.inc"
// clang-format on

constexpr int64_t kOperations = 2 * kLanes;
inline VF MulAdd(VF sum) { return Fma(sum, Set(0.5f), Set(1.0f)); }

#include "kernels/peak_loop.inc"

}  // namespace

PeakKernel GetPeakKernel() { return Peak; }

}  // namespace neuron::kernels::portable
