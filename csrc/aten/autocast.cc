// torch.autocast("neuron"): PyTorch's generic lists say which ops run in the lower precision, which
// in float32.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace neuron::aten {
namespace {

// The names that PyTorch's lists are written in.
using at::IntArrayRef;
using at::Scalar;
using at::ScalarType;
using at::Tensor;

#define NEURON_LOWER_PRECISION(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define NEURON_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define NEURON_FP32_SET_OPT_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define NEURON_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)

// As on every other device: its gradient overflows in the lower precision.
Tensor RefuseBinaryCrossEntropy(const Tensor&, const Tensor&, const std::optional<Tensor>&,
                                int64_t) {
  TORCH_CHECK(
      false,
      "binary_cross_entropy and BCELoss are unsafe to autocast: use "
      "binary_cross_entropy_with_logits or BCEWithLogitsLoss on what goes into the sigmoid");
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(NEURON_LOWER_PRECISION)
  AT_FORALL_FP32(NEURON_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(NEURON_FP32_SET_OPT_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(NEURON_PROMOTE)
  m.impl("binary_cross_entropy", &RefuseBinaryCrossEntropy);
}

}  // namespace
}  // namespace neuron::aten
