// What an instruction set provides to convolution besides the matrix kernels. Same rules as
// gemm_kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"

namespace neuron::kernels {

// Sums of one output pixel over its taps: y[c] = bias[c] + sum_t x[x_offsets[t] + c] *
// w[w_offsets[t] + c] for c < channels. x and y in one dtype, offsets in elements.
struct PixelArgs {
  const void* x;
  void* y;
  const float* w;
  const float* bias;
  const int64_t* x_offsets;
  const int64_t* w_offsets;
  int64_t taps, channels;
};

struct ConvKernels {
  // out[i] = sum_t weights[t] * in[offsets[t] + i * step] for i < count.
  void (*sum_row)(float* out, const float* in, const int64_t* offsets, const float* weights,
                  int64_t taps, int64_t step, int64_t count);
  void (*pixel_f32)(const PixelArgs&);
  void (*pixel_bf16)(const PixelArgs&);
  void (*pixel_f16)(const PixelArgs&);
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

const ConvKernels& FindConvKernels(Isa isa);

}  // namespace neuron::kernels
