// The matrix product's kernels for one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/gemm_kernels.h"

namespace neuron::kernels::avx2 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx2.inc"
#include "kernels/gemm_micro.inc"
#include "kernels/gemm_pack.inc"
#include "kernels/gemm_plain.inc"
#include "kernels/gemm_skinny.inc"
// clang-format on

}  // namespace

const GemmKernels* FindGemmKernels(DType dtype) {
  const GemmKernels* found = FindFloatKernels(dtype);
  return found != nullptr ? found : FindPlainKernels(dtype);
}

}  // namespace neuron::kernels::avx2
