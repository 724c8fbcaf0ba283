// What an instruction set provides to transposition. Same rules as gemm_kernels.h.
#pragma once

#include <cstdint>

namespace neuron::kernels {

// out[j * out_stride + i] = source[i * source_stride + j]; strides in elements.
using TransposeKernel = void (*)(int64_t rows, int64_t cols, const void* source,
                                 int64_t source_stride, void* out, int64_t out_stride);

struct TransposeKernels {
  TransposeKernel bytes1, bytes2, bytes4, bytes8;
};

namespace portable {
const TransposeKernels& GetTransposeKernels();
}
#if defined(__x86_64__)
namespace avx2 {
const TransposeKernels& GetTransposeKernels();
}
namespace avx512 {
const TransposeKernels& GetTransposeKernels();
}
#endif

}  // namespace neuron::kernels
