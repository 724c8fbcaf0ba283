#include "aten/library_functions.h"

#include <ATen/core/TensorBody.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>

#include "aten/dtype.h"
#include "aten/openmp.h"
#include "platform/host/engines.h"
#include "platform/host/library.h"

namespace neuron::aten {
namespace {

constexpr double kParallelFlops = 5e7;  // about a millisecond of one core

at::Tensor View(void* data, const host::TensorDesc& desc) {
  return at::from_blob(data, desc.dims, desc.strides,
                       at::TensorOptions().dtype(ToScalarType(desc.dtype)));
}

void Convolution(const host::LibraryCall& call) {
  if (host::CanConvolve(call)) return host::Convolve(call);
  const c10::InferenceMode guard;
  const size_t n = call.tensors.size();
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < n; ++i) tensors.push_back(View(call.data[i], call.tensors[i]));
  const auto& ints = call.attributes.ints;
  const auto rank = static_cast<size_t>(ints[2]);
  const auto list = [&](size_t which) {
    return c10::IntArrayRef(ints.data() + 3 + which * rank, rank);
  };
  at::Tensor& out = tensors.back();
  const double flops = 2.0 * static_cast<double>(out.numel()) *
                       static_cast<double>(tensors[1].numel()) /
                       static_cast<double>(std::max<int64_t>(1, tensors[1].size(0)));
  const OpenMpThreads threads(flops >= kParallelFlops);
  std::optional<at::Tensor> bias;
  if (n == 4) bias = tensors[2];
  out.copy_(at::convolution(tensors[0], tensors[1], bias, list(0), list(1), list(2), ints[0] != 0,
                            list(3), ints[1]));
}

}  // namespace

void RegisterLibtorchFunctions() { host::RegisterLibraryFunction("convolution", Convolution); }

}  // namespace neuron::aten
