// Indexing whose result's shape depends on data: masks are counted, then turned into positions.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/List.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_real.h>
#include <torch/library.h>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

using OptionalTensors = c10::List<std::optional<at::Tensor>>;

at::Tensor Nonzero(const at::Tensor& self) {
  static OpKernel& kernel = GetOpKernel("neuron::nonzero");
  const int64_t count = at::sum(self.to(at::kBool)).item<int64_t>();
  torch::jit::Stack stack{self, count};
  kernel.Run(&stack);
  return stack[0].toTensor();
}

at::Tensor& NonzeroOut(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "nonzero: Expected out tensor to have scalar type Long but got ", out.scalar_type());
  const at::Tensor positions = Nonzero(self);
  at::native::resize_output(out, positions.sizes());
  return out.copy_(positions);
}

// One i64 index per indexed dimension, all on the device.
OptionalTensors ExpandIndices(const at::Tensor& self, const OptionalTensors& indices) {
  OptionalTensors out;
  int64_t dim = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index || !index->defined()) {
      out.push_back(std::nullopt);
      ++dim;
      continue;
    }
    at::Tensor moved = index->is_cpu() ? index->to(self.device()) : *index;
    if (moved.scalar_type() != at::kBool && moved.scalar_type() != at::kByte) {
      out.push_back(moved);
      ++dim;
      continue;
    }
    for (int64_t d = 0; d < moved.dim(); ++d) {
      TORCH_CHECK_INDEX(dim + d < self.dim() && moved.size(d) == self.size(dim + d),
                        "The shape of the mask ", moved.sizes(), " at index ", d,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", dim + d);
    }
    // A 0-dim mask selects all or nothing along a new dimension of size 1 or 0.
    const at::Tensor positions = Nonzero(moved.dim() == 0 ? moved.unsqueeze(0) : moved);
    for (int64_t d = 0; d < positions.size(1); ++d) out.push_back(positions.select(1, d));
    dim += moved.dim();
  }
  return out;
}

at::Tensor Index(const at::Tensor& self, const OptionalTensors& indices) {
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim() || self.dim() == 0,
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
  bool zero_dim_mask = false;
  for (const std::optional<at::Tensor>& index : indices) {
    zero_dim_mask |= index && index->defined() && index->dim() == 0 &&
                     (index->scalar_type() == at::kBool || index->scalar_type() == at::kByte);
  }
  const at::Tensor base = zero_dim_mask ? self.unsqueeze(0) : self;
  static OpKernel& kernel = GetOpKernel("neuron::index");
  torch::jit::Stack stack{base, ExpandIndices(base, indices)};
  kernel.Run(&stack);
  return stack[0].toTensor();
}

at::Tensor& IndexOut(const at::Tensor& self, const OptionalTensors& indices, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "index: expected out of dtype ",
              self.scalar_type(), ", got ", out.scalar_type());
  const at::Tensor result = Index(self, indices);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

// One mask over leading dimensions and one value: no positions are needed.
bool IsMaskedFill(const at::Tensor& self, const OptionalTensors& indices, const at::Tensor& values,
                  bool accumulate) {
  if (accumulate || indices.size() != 1 || values.numel() != 1) return false;
  const std::optional<at::Tensor>& mask = indices[0];
  return mask && mask->defined() && mask->scalar_type() == at::kBool && mask->dim() > 0 &&
         mask->sizes() == self.sizes().slice(0, static_cast<size_t>(mask->dim()));
}

at::Tensor& IndexPut(at::Tensor& self, const OptionalTensors& indices, const at::Tensor& values,
                     bool accumulate, bool unsafe) {
  (void)unsafe;
  TORCH_CHECK_INDEX(static_cast<int64_t>(indices.size()) <= self.dim() || self.dim() == 0,
                    "too many indices for tensor of dimension ", self.dim(), " (got ",
                    indices.size(), ")");
  TORCH_CHECK_INDEX(values.scalar_type() == self.scalar_type(),
                    "Index put requires the source and destination dtypes match, got ",
                    self.scalar_type(), " for the destination and ", values.scalar_type(),
                    " for the source.");
  at::assert_no_internal_overlap(self);
  const at::Tensor source = values.is_cpu() ? values.to(self.device()) : values;
  if (IsMaskedFill(self, indices, values, accumulate)) {
    at::Tensor mask = indices[0]->to(self.device());
    while (mask.dim() < self.dim()) mask = mask.unsqueeze(-1);
    return self.masked_fill_(mask, source.reshape({}));
  }
  const OptionalTensors expanded = ExpandIndices(self, indices);
  static OpKernel& kernel = GetOpKernel("neuron::index_put_");
  // Pairs of real numbers are indexed as the numbers are, and added as they are.
  torch::jit::Stack stack{self, expanded, source, accumulate};
  if (self.is_complex()) {
    stack[0] = at::view_as_real(self);
    stack[2] = at::view_as_real(source.resolve_conj());
  }
  kernel.Run(&stack);
  return self;
}

at::Tensor MaskedSelect(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto sizes = at::infer_size(self.sizes(), mask.sizes());
  return Index(self.expand(sizes).reshape({-1}),
               OptionalTensors({mask.expand(sizes).reshape({-1})}));
}

at::Tensor& MaskedSelectOut(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "masked_select: expected out of dtype ",
              self.scalar_type(), ", got ", out.scalar_type());
  const at::Tensor result = MaskedSelect(self, mask);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_index_put_impl_", TORCH_FN(IndexPut));
  m.impl("masked_select", TORCH_FN(MaskedSelect));
  m.impl("masked_select.out", TORCH_FN(MaskedSelectOut));
  m.impl("nonzero", TORCH_FN(Nonzero));
  m.impl("nonzero.out", TORCH_FN(NonzeroOut));
  m.impl("index.Tensor", TORCH_FN(Index));
  m.impl("index.Tensor_out", TORCH_FN(IndexOut));
}

}  // namespace neuron::aten
