// PyTorch's fused attention for a backend of its own: neuron::attention with the returns that
// PyTorch expects.
#include <ATen/Context.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <array>
#include <cmath>

#include "aten/device/generator.h"
#include "aten/op_kernel.h"
#include "kernels/attention.h"

namespace neuron::aten {
namespace {

using Returns = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                           at::Tensor, at::Tensor, at::Tensor>;

double Scale(std::optional<double> scale, const at::Tensor& query) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

// On the CPU: becomes an argument of the launch.
at::Tensor NumberTensor(uint64_t value) {
  at::Tensor tensor = at::empty({}, at::dtype(at::kLong));
  *tensor.mutable_data_ptr<int64_t>() = static_cast<int64_t>(value);
  return tensor;
}

Returns FusedAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                       const std::optional<at::Tensor>& attn_bias, double dropout_p, bool is_causal,
                       bool return_debug_mask, std::optional<double> scale) {
  TORCH_CHECK_NOT_IMPLEMENTED(!return_debug_mask, "return_debug_mask is not implemented on neuron");
  static OpKernel& kernel = GetOpKernel("neuron::attention");
  uint64_t seed = 0, offset = 0;
  if (dropout_p != 0.0) {
    const int64_t counters =
        kernels::DropoutCounters(query.size(0), query.size(1), query.size(2), key.size(2));
    std::tie(seed, offset) =
        ReserveRandom(std::nullopt, query.device().index(), static_cast<uint64_t>(counters));
  }
  const at::Tensor philox_seed = NumberTensor(seed), philox_offset = NumberTensor(offset);
  torch::jit::Stack stack{query,     key,         value,
                          attn_bias, is_causal,   Scale(scale, query),
                          dropout_p, philox_seed, philox_offset};
  kernel.Run(&stack);
  const at::Tensor none;
  return {stack[0].toTensor(), stack[1].toTensor(), none,          none, query.sym_size(2),
          key.sym_size(2),     philox_seed,         philox_offset, none};
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Gradients FusedAttentionBackward(const at::Tensor& grad_out, const at::Tensor& query,
                                 const at::Tensor& key, const at::Tensor& value,
                                 const at::Tensor& attn_bias, std::array<bool, 4> grad_input_mask,
                                 const at::Tensor& out, const at::Tensor& logsumexp,
                                 const at::Tensor&, const at::Tensor&, int64_t, int64_t,
                                 double dropout_p, bool is_causal, const at::Tensor& philox_seed,
                                 const at::Tensor& philox_offset, std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  const bool wants_bias = grad_input_mask[3] && attn_bias.defined();
  TORCH_CHECK_NOT_IMPLEMENTED(!wants_bias || dropout_p == 0.0,
                              "fused attention on neuron with dropout_p=", dropout_p,
                              " has no gradient of the mask: use "
                              "torch.nn.attention.sdpa_kernel(SDPBackend.MATH)");
  static OpKernel& kernel = GetOpKernel("neuron::attention_backward");
  const auto optional = [](const at::Tensor& tensor) {
    return tensor.defined() ? c10::IValue(tensor) : c10::IValue();
  };
  torch::jit::Stack stack{grad_out,
                          query,
                          key,
                          value,
                          optional(attn_bias),
                          out,
                          logsumexp,
                          is_causal,
                          Scale(scale, query),
                          dropout_p,
                          philox_seed,
                          philox_offset};
  kernel.Run(&stack);
  at::Tensor bias_gradient;
  if (wants_bias) {
    static OpKernel& bias_kernel = GetOpKernel("neuron::attention_bias_gradient");
    torch::jit::Stack call{grad_out, query, key, value, attn_bias, is_causal, Scale(scale, query)};
    bias_kernel.Run(&call);
    bias_gradient = call[0].toTensor();
  }
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor(), bias_gradient};
}

// The fused op where it computes what is asked for, else PyTorch's composition of matmul and
// softmax.
int64_t Choose(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
               const std::optional<at::Tensor>& attn_mask, double dropout_p, bool is_causal,
               std::optional<double> scale, bool enable_gqa) {
  const auto is = [&](const at::Tensor& tensor) {
    return tensor.dim() == 4 && tensor.scalar_type() == query.scalar_type();
  };
  const bool dtype = query.scalar_type() == at::kFloat || query.scalar_type() == at::kBFloat16 ||
                     query.scalar_type() == at::kHalf || query.scalar_type() == at::kDouble;
  const bool mask =
      !attn_mask || !attn_mask->defined() || !attn_mask->requires_grad() || dropout_p == 0.0;
  const bool heads = key.dim() == 4 &&
                     (key.size(1) == query.size(1) ||
                      (enable_gqa && key.size(1) > 0 && query.size(1) % key.size(1) == 0)) &&
                     value.dim() == 4 && value.size(1) == key.size(1);
  const bool batch = heads && key.size(0) == query.size(0) && value.size(0) == query.size(0);
  (void)scale;
  (void)is_causal;
  const bool fused = dtype && is(query) && is(key) && is(value) && batch && mask &&
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
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward",
         TORCH_FN(FusedAttentionBackward));
}

}  // namespace neuron::aten
