// Tensors without computation: creation, storage, views.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "aten/device/allocator.h"
#include "aten/device/errors.h"
#include "runtime/device.h"

namespace neuron::aten {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

c10::Device DeviceOf(std::optional<c10::Device> device) {
  const c10::Device chosen = c10::device_or_default(device);
  TORCH_CHECK(chosen.type() == c10::DeviceType::PrivateUse1, "expected a neuron device, got ",
              chosen);
  return chosen.has_index()
             ? chosen
             : c10::Device(chosen.type(), static_cast<c10::DeviceIndex>(runtime::CurrentDevice()));
}

void CheckOptions(std::optional<at::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(c10::layout_or_default(layout) == c10::Layout::Strided,
                              "neuron tensors are strided; layout ", c10::layout_or_default(layout),
                              " is not supported");
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

at::Tensor Empty(c10::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout> layout, std::optional<at::Device> device,
                 std::optional<bool> pin_memory, std::optional<at::MemoryFormat> memory_format) {
  CheckOptions(layout, pin_memory);
  const c10::DeviceGuard guard(DeviceOf(device));
  return at::detail::empty_generic(size, Allocator(), kKeys, c10::dtype_or_default(dtype),
                                   memory_format);
}

at::Tensor EmptyStrided(c10::IntArrayRef size, c10::IntArrayRef stride,
                        std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                        std::optional<at::Device> device, std::optional<bool> pin_memory) {
  CheckOptions(layout, pin_memory);
  const c10::DeviceGuard guard(DeviceOf(device));
  return at::detail::empty_strided_generic(size, stride, Allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

void GrowStorage(const at::Tensor& self) {
  const size_t needed =
      at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.element_size(),
                                       static_cast<size_t>(self.storage_offset()));
  if (self.numel() > 0 && needed > self.storage().nbytes()) {
    ResizeStorage(self.storage().unsafeGetStorageImpl(), needed);
  }
}

const at::Tensor& Resize(const at::Tensor& self, c10::IntArrayRef size,
                         std::optional<at::MemoryFormat> memory_format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
    GrowStorage(self);
  }
  if (memory_format.has_value()) {
    TORCH_CHECK(*memory_format != at::MemoryFormat::Preserve, "Unsupported memory format ",
                *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  return self;
}

at::Tensor& SetStorageAndShape(at::Tensor& self, at::Storage source, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  if (stride.data() != nullptr && stride.size() == size.size()) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  GrowStorage(self);
  return self;
}

at::Tensor& SetStorage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return SetStorageAndShape(self, std::move(source), 0, {elements}, {});
}

at::Tensor& SetTensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) return self;
  return SetStorageAndShape(self, source.storage(), source.storage_offset(), source.sizes(),
                            source.strides());
}

at::Tensor& SetEmpty(at::Tensor& self) {
  const c10::Storage storage(c10::Storage::use_byte_size_t(), 0, Allocator(), true);
  return SetStorageAndShape(self, storage, 0, {0}, {});
}

void RecordStream(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK(self.is_privateuseone() && stream.device_type() == c10::DeviceType::PrivateUse1,
              "record_stream: expected neuron tensor and stream, got ", self.device(), " and ",
              stream);
  if (self.numel() > 0) Allocator()->recordStream(self.storage().data_ptr(), stream);
}

// Lets `parameter.data = moved` work between the CPU and the device, as it does for CUDA:
// Module.to() then keeps its parameters' identity, and an optimizer made before goes on with them.
bool HasCompatibleShallowCopyType(const at::Tensor& self, const at::Tensor& from) {
  const auto is_dense = [](const at::Tensor& tensor) {
    constexpr c10::DispatchKeySet kBackends(
        {c10::BackendComponent::CPUBit, c10::BackendComponent::PrivateUse1Bit});
    return tensor.key_set().has(c10::DispatchKey::Dense) && tensor.key_set().has_any(kBackends);
  };
  return (is_dense(self) && is_dense(from)) ||
         self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(HasCompatibleShallowCopyType));
  m.impl("empty.memory_format", TORCH_FN(Empty));
  m.impl("empty_strided", TORCH_FN(EmptyStrided));
  m.impl("resize_", TORCH_FN(Resize));
  m.impl("set_.source_Storage", TORCH_FN(SetStorage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(SetStorageAndShape));
  m.impl("set_.source_Tensor", TORCH_FN(SetTensor));
  m.impl("set_", TORCH_FN(SetEmpty));
  m.impl("record_stream", TORCH_FN(RecordStream));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
}

}  // namespace neuron::aten
