// The device's own operators: what the lowering table names "neuron::...", with their meta kernels.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index.h>
#include <torch/library.h>

#include "aten/launch.h"
#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

at::Tensor& CopyMeta(const at::Tensor& self, at::Tensor& out) {
  (void)self;
  return out;
}

// query [B,H,L,E], value [B,Hk,S,Ev] -> [B,H,L,Ev] laid out as [B,L,H,Ev], which the next linear
// layer reads without a copy; logsumexp f32 [B,H,L].
std::tuple<at::Tensor, at::Tensor> AttentionMeta(const at::Tensor& query, const at::Tensor& key,
                                                 const at::Tensor& value,
                                                 const std::optional<at::Tensor>& attn_bias,
                                                 bool is_causal, double scale, double dropout_p,
                                                 const std::optional<at::Tensor>& philox_seed,
                                                 const std::optional<at::Tensor>& philox_offset) {
  (void)key;
  (void)attn_bias;
  (void)is_causal;
  (void)scale;
  (void)dropout_p;
  (void)philox_seed;
  (void)philox_offset;
  at::Tensor out =
      at::empty({query.size(0), query.size(2), query.size(1), value.size(3)}, query.options())
          .transpose(1, 2);
  at::Tensor lse =
      at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
  return {out, lse};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> AttentionBackwardMeta(
    const at::Tensor&, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const std::optional<at::Tensor>&, const at::Tensor&, const at::Tensor&, bool, double, double,
    const std::optional<at::Tensor>&, const std::optional<at::Tensor>&) {
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
}

at::Tensor AttentionBiasGradientMeta(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, const at::Tensor& attn_bias, bool, double) {
  return at::empty(attn_bias.sizes(), attn_bias.options());
}

at::Tensor ConvolutionWeightGradMeta(const at::Tensor&, const at::Tensor&, const at::Tensor& weight,
                                     at::IntArrayRef, at::IntArrayRef, at::IntArrayRef, int64_t) {
  return at::empty_like(weight);
}

at::Tensor IndexMeta(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  return at::index(self, indices);
}

at::Tensor& IndexPutMeta(at::Tensor& self, const c10::List<std::optional<at::Tensor>>&,
                         const at::Tensor&, bool) {
  return self;
}

// Laid out as on PyTorch's own devices: the positions along one dimension are together.
at::Tensor NonzeroMeta(const at::Tensor& self, int64_t count) {
  return at::empty({self.dim(), count}, self.options().dtype(at::kLong)).t();
}

at::Tensor& IntegersMeta(at::Tensor& self, int64_t, int64_t, std::optional<at::Generator>) {
  return self;
}

}  // namespace

void LaunchStridedCopy(const at::Tensor& dst, const at::Tensor& src) {
  static OpKernel& kernel = GetOpKernel("neuron::copy.out");
  torch::jit::Stack stack{src, dst};
  kernel.Run(&stack);
}

TORCH_LIBRARY(neuron, m) {
  m.def("copy.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)");
  m.def("index(Tensor self, Tensor?[] indices) -> Tensor");
  m.def(
      "index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate) -> "
      "Tensor(a!)");
  m.def("nonzero(Tensor self, SymInt count) -> Tensor");
  m.def(
      "integers_(Tensor(a!) self, int base, int range, *, Generator? generator=None) -> "
      "Tensor(a!)");
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool is_causal, float "
      "scale, float dropout_p, Tensor? philox_seed, Tensor? philox_offset) -> (Tensor, Tensor)");
  m.def(
      "attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor? "
      "attn_bias, Tensor out, Tensor logsumexp, bool is_causal, float scale, float dropout_p, "
      "Tensor? philox_seed, Tensor? philox_offset) -> (Tensor, Tensor, Tensor)");
  m.def(
      "attention_bias_gradient(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor "
      "attn_bias, bool is_causal, float scale) -> Tensor");
  m.def(
      "convolution_weight_grad(Tensor input, Tensor grad_output, Tensor weight, SymInt[] stride, "
      "SymInt[] padding, SymInt[] dilation, SymInt groups) -> Tensor");
}

TORCH_LIBRARY_IMPL(neuron, Meta, m) {
  m.impl("convolution_weight_grad", TORCH_FN(ConvolutionWeightGradMeta));
  m.impl("copy.out", TORCH_FN(CopyMeta));
  m.impl("index", TORCH_FN(IndexMeta));
  m.impl("index_put_", TORCH_FN(IndexPutMeta));
  m.impl("nonzero", TORCH_FN(NonzeroMeta));
  m.impl("integers_", TORCH_FN(IntegersMeta));
  m.impl("attention", TORCH_FN(AttentionMeta));
  m.impl("attention_backward", TORCH_FN(AttentionBackwardMeta));
  m.impl("attention_bias_gradient", TORCH_FN(AttentionBiasGradientMeta));
}

}  // namespace neuron::aten
