// PyTorch's fused encoder layer, which nn.TransformerEncoderLayer calls in inference, composed of
// the ops that the layer calls otherwise.
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/library.h>

namespace neuron::aten {
namespace {

// What a query may look at: bool, to be broadcast to [B, H, L, S]. True in `mask` hides a key.
// kind 0: mask is [L, S]; 1: of keys, [B, S]; 2: [B, H, L, S] already.
std::optional<at::Tensor> Visible(const std::optional<at::Tensor>& mask,
                                  std::optional<int64_t> kind) {
  if (!mask || !mask->defined()) return std::nullopt;
  TORCH_CHECK(kind.has_value(), "mask_type must be given with a mask");
  TORCH_CHECK(*kind >= 0 && *kind <= 2,
              "Mask Type should be 0 (src_mask), 1 (src_key_padding_mask), ",
              "or 2 (default_mask), got ", *kind);
  const at::Tensor visible = mask->to(at::kBool).logical_not();
  return *kind == 1 ? visible.unsqueeze(1).unsqueeze(1) : visible;
}

// src [B, L, embed_dim] -> the same shape.
at::Tensor EncoderLayer(const at::Tensor& src, int64_t embed_dim, int64_t num_heads,
                        const at::Tensor& qkv_weight, const at::Tensor& qkv_bias,
                        const at::Tensor& proj_weight, const at::Tensor& proj_bias, bool use_gelu,
                        bool norm_first, double eps, const at::Tensor& norm_weight_1,
                        const at::Tensor& norm_bias_1, const at::Tensor& norm_weight_2,
                        const at::Tensor& norm_bias_2, const at::Tensor& ffn_weight_1,
                        const at::Tensor& ffn_bias_1, const at::Tensor& ffn_weight_2,
                        const at::Tensor& ffn_bias_2, const std::optional<at::Tensor>& mask,
                        std::optional<int64_t> mask_type) {
  TORCH_CHECK(src.dim() == 3 && src.size(2) == embed_dim && embed_dim % num_heads == 0,
              "_transformer_encoder_layer_fwd: expected src of [batch, length, ", embed_dim,
              "] and ", num_heads, " heads that divide its last size, got ", src.sizes());
  const auto normed = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
    return at::layer_norm(x, {embed_dim}, weight, bias, eps);
  };
  const at::Tensor x = norm_first ? normed(src, norm_weight_1, norm_bias_1) : src;
  // [B, L, 3, H, E/H] -> three of [B, H, L, E/H]
  const auto qkv = at::linear(x, qkv_weight, qkv_bias)
                       .unflatten(-1, {3, num_heads, embed_dim / num_heads})
                       .permute({2, 0, 3, 1, 4})
                       .unbind(0);
  const at::Tensor heads =
      at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], Visible(mask, mask_type));
  at::Tensor y = at::linear(heads.transpose(1, 2).flatten(2), proj_weight, proj_bias).add(src);
  if (!norm_first) y = normed(y, norm_weight_1, norm_bias_1);
  const at::Tensor z =
      at::linear(norm_first ? normed(y, norm_weight_2, norm_bias_2) : y, ffn_weight_1, ffn_bias_1);
  y = at::linear(use_gelu ? at::gelu(z) : at::relu(z), ffn_weight_2, ffn_bias_2).add(y);
  return norm_first ? y : normed(y, norm_weight_2, norm_bias_2);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_transformer_encoder_layer_fwd", TORCH_FN(EncoderLayer));
}

}  // namespace neuron::aten
