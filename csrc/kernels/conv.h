// Convolutions of the software NeuronCores.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "support/dtype.h"

namespace neuron::kernels {

// As PyTorch's aten::convolution, with three spatial dimensions (depth, height, width; sizes of 1
// in front where there are fewer). Strides are in elements: batch, channel, then spatial; of the
// weight: its dimensions 0 and 1, then spatial. Any strides, so any memory format.
struct ConvArgs {
  DType dtype = DType::kF32;  // of all tensors: f32, bf16 or f16
  int64_t batch = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // of all groups
  int64_t in[3] = {}, out[3] = {}, kernel[3] = {};
  int64_t stride[3] = {}, padding[3] = {}, dilation[3] = {};
  bool transposed = false;  // the weight is [in channels][out channels of a group], and `out` says
                            // the size
  const void* x = nullptr;
  int64_t x_strides[5] = {};
  const void* w = nullptr;
  int64_t w_strides[5] = {};
  const void* bias = nullptr;  // may be null
  int64_t bias_stride = 0;
  void* y = nullptr;
  int64_t y_strides[5] = {};
};

// Returns when y is written. Sums in f32 and rounds once. An implicit matrix product: a band of the
// input is copied with its padding, channels innermost, and read in place by the matrix kernels
// once per tap; a transposed convolution is one convolution per phase of its stride. Same bits
// whatever the number of threads. Throws kUnsupported for other dtypes, kInvalidArgument for sizes
// that do not fit together.
void Convolution(const ConvArgs& args, Isa isa = ActiveIsa());

// Throws kInvalidArgument for sizes that do not fit together.
void CheckConvolution(const ConvArgs& args);

// The gradient of the weight of an ordinary convolution, with y the gradient of its result; w and
// bias are not read, and w_grad has w's strides. Of a transposed one: x and y exchanged. dtype: f64
// too. Copies the input once per tap, so takes memory of its size.
void ConvolutionWeightGrad(const ConvArgs& args, void* w_grad, Isa isa = ActiveIsa());

}  // namespace neuron::kernels
