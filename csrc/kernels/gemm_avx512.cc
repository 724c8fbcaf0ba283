// The matrix product's kernels for one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/gemm_kernels.h"

namespace neuron::kernels::avx512 {
namespace {

#include "kernels/scalar.inc"
// The vectors come next, then what is built on them.
#include "kernels/simd_avx512.inc"
#include "kernels/gemm_micro.inc"
// Kernels by type of sum.
#include "kernels/gemm_pack.inc"
#include "kernels/gemm_plain.inc"
#include "kernels/gemm_skinny.inc"

}  // namespace

const GemmKernels* FindGemmKernels(DType dtype) {
  const GemmKernels* found = FindFloatKernels(dtype);
  return found != nullptr ? found : FindPlainKernels(dtype);
}

}  // namespace neuron::kernels::avx512
