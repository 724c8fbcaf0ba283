// Transposition for one instruction set; kernels.cmake sets its compiler flags.
#include "kernels/transpose_kernels.h"

namespace neuron::kernels::portable {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_portable.inc"
// clang-format on

template <typename T>
VF LoadBits(const T* p) {
  VF out;
  for (int i = 0; i < kLanes; ++i) out[i] = FloatOf(p[i]);
  return out;
}
template <typename T>
void StoreBits(T* p, VF x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<T>(BitsOf(x[i]));
}

#include "kernels/transpose_tiles.inc"

}  // namespace

const TransposeKernels& GetTransposeKernels() { return kTransposeKernels; }

}  // namespace neuron::kernels::portable
