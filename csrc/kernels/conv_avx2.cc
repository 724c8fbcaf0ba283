// Convolution's kernels for one instruction set; kernels.cmake sets its compiler flags.
#include <immintrin.h>

#include "kernels/conv_kernels.h"

namespace neuron::kernels::avx2 {
namespace {

// clang-format off: each builds on those before it
#include "kernels/scalar.inc"
#include "kernels/simd_avx2.inc"
#include "kernels/conv_rows.inc"
// clang-format on

}  // namespace

const ConvKernels& GetConvKernels() { return kConvKernels; }

}  // namespace neuron::kernels::avx2
