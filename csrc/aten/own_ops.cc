// The device's own operators: what the lowering table names "neuron::...", with their meta kernels.
#include <ATen/ops/empty.h>
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
                                                 bool is_causal, double scale) {
  (void)key;
  (void)attn_bias;
  (void)is_causal;
  (void)scale;
  at::Tensor out =
      at::empty({query.size(0), query.size(2), query.size(1), value.size(3)}, query.options())
          .transpose(1, 2);
  at::Tensor lse =
      at::empty({query.size(0), query.size(1), query.size(2)}, query.options().dtype(at::kFloat));
  return {out, lse};
}

at::Tensor IndexMeta(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  return at::index(self, indices);
}

at::Tensor NonzeroMeta(const at::Tensor& self, int64_t count) {
  return at::empty({count, self.dim()}, self.options().dtype(at::kLong));
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
  m.def("nonzero(Tensor self, SymInt count) -> Tensor");
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias, bool is_causal, float "
      "scale) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(neuron, Meta, m) {
  m.impl("copy.out", TORCH_FN(CopyMeta));
  m.impl("index", TORCH_FN(IndexMeta));
  m.impl("nonzero", TORCH_FN(NonzeroMeta));
  m.impl("attention", TORCH_FN(AttentionMeta));
}

}  // namespace neuron::aten
