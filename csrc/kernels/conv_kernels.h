// What an instruction set provides to convolution besides the matrix kernels. Same rules as
// gemm_kernels.h.
#pragma once

#include <cstdint>

namespace neuron::kernels {

struct ConvKernels {
  // out[i] += factor * in[i * step] for i < count.
  void (*add_row)(float* out, const float* in, int64_t step, int64_t count, float factor);
};

namespace portable {
const ConvKernels& GetConvKernels();
}
#if defined(__x86_64__)
namespace avx2 {
const ConvKernels& GetConvKernels();
}
namespace avx512 {
const ConvKernels& GetConvKernels();
}
#endif

}  // namespace neuron::kernels
