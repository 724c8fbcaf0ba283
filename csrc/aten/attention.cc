// PyTorch's fused attention for a backend of its own: neuron::attention with the returns that
// PyTorch expects.
#include <ATen/Context.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <cmath>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

using Returns = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                           at::Tensor, at::Tensor, at::Tensor>;

Returns FusedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const std::optional<at::Tensor>& attn_bias, double dropout_p, bool is_causal,
                       bool return_debug_mask, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      dropout_p == 0.0, "scaled_dot_product_attention with dropout_p=", dropout_p,
      " is not implemented on neuron: use torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask, "return_debug_mask is not implemented on neuron");
  static OpKernel& kernel = GetOpKernel("neuron::attention");
  const double factor = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
  torch::jit::Stack stack{query, key, value, attn_bias, is_causal, factor};
  kernel.Run(&stack);
  const at::Tensor none;
  const auto seed = at::empty({}, at::dtype(at::kLong));
  return {stack[0].toTensor(),
          stack[1].toTensor(),
          none,
          none,
          query.sym_size(2),
          key.sym_size(2),
          seed,
          seed.clone(),
          none};
}

// The fused op where it computes what is asked for, else PyTorch's composition of matmul and
// softmax.
int64_t Choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal,
               std::optional<double> scale, bool enable_gqa) {
  const sdp::sdp_params params{query, key, value, attn_mask, dropout_p, is_causal, enable_gqa};
  const auto is = [&](const at::Tensor& tensor) {
    return tensor.dim() == 4 && tensor.scalar_type() == query.scalar_type();
  };
  const bool dtype = query.scalar_type() == at::kFloat || query.scalar_type() == at::kBFloat16 ||
                     query.scalar_type() == at::kHalf || query.scalar_type() == at::kDouble;
  const bool mask = !attn_mask || !attn_mask->defined() || !attn_mask->requires_grad();
  const bool heads = key.dim() == 4 &&
                     (key.size(1) == query.size(1) ||
                      (enable_gqa && key.size(1) > 0 && query.size(1) % key.size(1) == 0)) &&
                     value.dim() == 4 && value.size(1) == key.size(1);
  const bool batch = heads && key.size(0) == query.size(0) && value.size(0) == query.size(0);
  (void)scale;
  const bool fused = dtype && is(query) && is(key) && is(value) && batch && mask &&
                     dropout_p == 0.0 && !sdp::input_requires_grad(params) &&
                     at::globalContext().userEnabledOverrideableSDP();
  return static_cast<int64_t>(fused ? sdp::SDPBackend::overrideable : sdp::SDPBackend::math);
}

}  // namespace
}  // namespace neuron::aten

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::aten::Choose)
}  // namespace at::native

namespace neuron::aten {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(Choose));
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(FusedAttention));
}

}  // namespace neuron::aten
