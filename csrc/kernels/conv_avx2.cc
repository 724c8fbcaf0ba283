// Convolution's kernels for one instruction set; kernels.cmake sets its compiler flags.
#include "kernels/conv_kernels.h"

namespace neuron::kernels::avx2 {
namespace {

#include "kernels/conv_rows.inc"

}  // namespace

const ConvKernels& GetConvKernels() {
  static constexpr ConvKernels kKernels = {AddRow};
  return kKernels;
}

}  // namespace neuron::kernels::avx2
