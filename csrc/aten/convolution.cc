// The gradients of convolutions: of the input another convolution, of the weight the device's own
// op, of the bias a sum.
#include <ATen/ops/convolution.h>
#include <ATen/ops/sum.h>
#include <torch/library.h>

#include <array>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

// What one element stands for all dimensions of, once per dimension.
std::vector<int64_t> PerDim(at::IntArrayRef values, int64_t rank) {
  return values.size() == 1 ? std::vector<int64_t>(static_cast<size_t>(rank), values[0])
                            : values.vec();
}

// An ordinary convolution's is a transposed one with the same weight, and the other way round.
at::Tensor InputGrad(const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
                     const std::vector<int64_t>& stride, const std::vector<int64_t>& padding,
                     const std::vector<int64_t>& dilation, bool transposed, int64_t groups) {
  std::vector<int64_t> output_padding(stride.size(), 0);
  for (size_t d = 0; !transposed && d < stride.size(); ++d) {
    const auto dim = static_cast<int64_t>(d) + 2;
    output_padding[d] = input.size(dim) - ((grad.size(dim) - 1) * stride[d] - 2 * padding[d] +
                                           dilation[d] * (weight.size(dim) - 1) + 1);
  }
  return at::convolution(grad, weight, std::nullopt, stride, padding, dilation, !transposed,
                         output_padding, groups);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> ConvolutionBackward(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalIntArrayRef, at::IntArrayRef stride_arg, at::IntArrayRef padding_arg,
    at::IntArrayRef dilation_arg, bool transposed, at::IntArrayRef, int64_t groups,
    std::array<bool, 3> output_mask) {
  const int64_t rank = input.dim() - 2;
  const auto stride = PerDim(stride_arg, rank), padding = PerDim(padding_arg, rank),
             dilation = PerDim(dilation_arg, rank);
  at::Tensor input_grad, weight_grad, bias_grad;
  if (output_mask[0]) {
    input_grad =
        InputGrad(grad_output, input, weight, stride, padding, dilation, transposed, groups);
  }
  if (output_mask[1]) {
    static OpKernel& kernel = GetOpKernel("neuron::convolution_weight_grad");
    torch::jit::Stack stack{transposed ? grad_output : input,
                            transposed ? input : grad_output,
                            weight,
                            stride,
                            padding,
                            dilation,
                            groups};
    kernel.Run(&stack);
    weight_grad = stack[0].toTensor();
  }
  if (output_mask[2]) {
    std::vector<int64_t> dims{0};
    for (int64_t d = 2; d < grad_output.dim(); ++d) dims.push_back(d);
    bias_grad = at::sum(grad_output, dims);
  }
  return {input_grad, weight_grad, bias_grad};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_backward", TORCH_FN(ConvolutionBackward));
}

}  // namespace neuron::aten
