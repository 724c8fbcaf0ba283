// Comparison of whole tensors, whose result the caller reads: it waits for the device.
#include <ATen/core/TensorBody.h>
#include <ATen/ops/all.h>
#include <ATen/ops/eq.h>
#include <torch/library.h>

namespace neuron::aten {
namespace {

bool Equal(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
              other.device());
  TORCH_CHECK(self.scalar_type() == other.scalar_type(),
              "Expected all tensors to have the same dtype, got ", self.scalar_type(), " and ",
              other.scalar_type());
  if (self.sizes() != other.sizes()) return false;
  if (self.numel() == 0) return true;
  return at::all(at::eq(self, other)).item<bool>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("equal", TORCH_FN(Equal)); }

}  // namespace neuron::aten
