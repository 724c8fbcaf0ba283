// Copies between host and device, within a core and between cores.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "aten/device/errors.h"
#include "aten/device/pinned.h"
#include "aten/dtype.h"
#include "aten/launch.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace neuron::aten {
namespace {

constexpr size_t kStagedBytes = 64 << 10;  // smaller copies from pageable memory return at once

platform::DeviceAddress AddressOf(const at::Tensor& tensor) {
  return reinterpret_cast<platform::DeviceAddress>(tensor.const_data_ptr());
}

platform::Queue& QueueOf(const at::Tensor& tensor) {
  return Guarded([&]() -> platform::Queue& {
    runtime::Initialize();
    return runtime::CurrentStream(tensor.device().index()).queue();
  });
}

// One run of memory holds both tensors' elements in the same order.
bool SameDenseLayout(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.is_non_overlapping_and_dense() &&
         a.strides() == b.strides();
}

at::Tensor EmptyOnDevice(const at::Tensor& like, at::ScalarType dtype, c10::Device device) {
  return at::empty(like.sizes(), at::TensorOptions().dtype(dtype).device(device));
}

void HostToDeviceBytes(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const size_t bytes = src.nbytes();
  platform::Queue& queue = QueueOf(dst);
  const bool pinned = IsPinned(src.const_data_ptr());
  Guarded([&] {
    if (pinned && non_blocking) {
      auto owner = std::make_shared<at::Tensor>(src);
      queue.CopyToDevice(AddressOf(dst), src.const_data_ptr(), bytes, std::move(owner));
    } else if (bytes <= kStagedBytes) {
      const std::shared_ptr<char[]> staged(new char[bytes]);
      std::memcpy(staged.get(), src.const_data_ptr(), bytes);
      queue.CopyToDevice(AddressOf(dst), staged.get(), bytes, staged);
    } else {
      queue.CopyToDevice(AddressOf(dst), src.const_data_ptr(), bytes);
      queue.Synchronize();
    }
  });
}

void HostToDevice(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (SameDenseLayout(dst, src)) return HostToDeviceBytes(dst, src, non_blocking);
  // Convert on the side that moves fewer bytes.
  const bool convert_here = src.element_size() > dst.element_size() ||
                            !ToDType(src.scalar_type()) || src.is_complex() != dst.is_complex();
  const at::Tensor prepared = (convert_here ? src.to(dst.scalar_type()) : src).contiguous();
  if (SameDenseLayout(dst, prepared)) return HostToDeviceBytes(dst, prepared, non_blocking);
  const at::Tensor staged = EmptyOnDevice(prepared, prepared.scalar_type(), dst.device());
  HostToDeviceBytes(staged, prepared, non_blocking);
  LaunchStridedCopy(dst, staged);
}

void DeviceToHost(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  platform::Queue& queue = QueueOf(src);
  if (SameDenseLayout(dst, src)) {
    Guarded([&] {
      queue.CopyFromDevice(dst.mutable_data_ptr(), AddressOf(src), src.nbytes());
      if (!non_blocking || !IsPinned(dst.const_data_ptr())) queue.Synchronize();
    });
    return;
  }
  at::Tensor dense = src;
  if (!src.is_non_overlapping_and_dense()) {
    dense = EmptyOnDevice(src, src.scalar_type(), src.device());
    LaunchStridedCopy(dense, src);
  }
  const at::Tensor host =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(c10::kCPU));
  Guarded([&] {
    queue.CopyFromDevice(host.mutable_data_ptr(), AddressOf(dense), dense.nbytes());
    queue.Synchronize();
  });
  dst.copy_(host);
}

void WithinCore(const at::Tensor& dst, const at::Tensor& src) {
  if (AddressOf(dst) == AddressOf(src) && dst.strides() == src.strides() &&
      dst.scalar_type() == src.scalar_type())
    return;
  if (SameDenseLayout(dst, src) && at::get_overlap_status(dst, src) == at::MemOverlapStatus::No) {
    Guarded([&] { QueueOf(dst).CopyOnDevice(AddressOf(dst), AddressOf(src), src.nbytes()); });
    return;
  }
  if (at::get_overlap_status(dst, src) != at::MemOverlapStatus::No) {
    // Read everything before anything is written.
    const at::Tensor copy = EmptyOnDevice(src, src.scalar_type(), src.device());
    LaunchStridedCopy(copy, src);
    return LaunchStridedCopy(dst, copy);
  }
  LaunchStridedCopy(dst, src);
}

// The source core's queue makes the data dense, the destination's fetches it; each waits for the
// other.
void BetweenCores(const at::Tensor& dst, const at::Tensor& src) {
  at::Tensor dense = src;
  if (!src.is_contiguous()) {
    const c10::DeviceGuard guard(src.device());
    dense = EmptyOnDevice(src, src.scalar_type(), src.device());
    LaunchStridedCopy(dense, src);
  }
  const c10::DeviceGuard guard(dst.device());
  const at::Tensor arrived =
      SameDenseLayout(dst, dense) ? dst : EmptyOnDevice(dense, dense.scalar_type(), dst.device());
  Guarded([&] {
    platform::Queue& from = QueueOf(dense);
    platform::Queue& to = QueueOf(dst);
    const auto ready = runtime::GetDevice(dense.device().index()).CreateEvent(false);
    from.Record(*ready);
    to.WaitFor(*ready);
    to.CopyOnDevice(AddressOf(arrived), AddressOf(dense), dense.nbytes());
    const auto done = runtime::GetDevice(dst.device().index()).CreateEvent(false);
    to.Record(*done);
    from.WaitFor(*done);  // so that the source's memory is not reused too early
  });
  if (!arrived.is_same(dst)) LaunchStridedCopy(dst, arrived);
}

void CopyDefined(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (dst.is_complex() && src.is_complex()) {
    return CopyDefined(at::view_as_real(dst), at::view_as_real(src), non_blocking);
  }
  const bool to_device = dst.is_privateuseone();
  const bool from_device = src.is_privateuseone();
  if (to_device && from_device && dst.is_complex()) {
    const at::Tensor parts = at::view_as_real(dst);
    parts.select(-1, 1).zero_();
    return CopyDefined(parts.select(-1, 0), src, non_blocking);
  }
  if (to_device && from_device && src.is_complex()) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
    return CopyDefined(dst, at::view_as_real(src).select(-1, 0), non_blocking);
  }
  if (!to_device) {
    TORCH_CHECK(dst.is_cpu(), "copy from ", src.device(), " to ", dst.device(),
                " is not supported: go through .cpu()");
    DeviceToHost(dst, src, non_blocking);
  } else if (!from_device) {
    TORCH_CHECK(src.is_cpu(), "copy from ", src.device(), " to ", dst.device(),
                " is not supported: go through .cpu()");
    HostToDevice(dst, src, non_blocking);
  } else if (dst.device() == src.device()) {
    WithinCore(dst, src);
  } else {
    BetweenCores(dst, src);
  }
}

at::Tensor& Copy(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  TORCH_CHECK(self.defined() && src.defined(), "copy_ needs defined tensors");
  if (self.is_conj()) {
    at::Tensor plain = self.conj();
    Copy(plain, src.conj(), non_blocking);
    return self;
  }
  at::assert_no_internal_overlap(self);
  const at::Tensor source = src.is_conj() || src.is_neg() ? src.resolve_conj().resolve_neg() : src;
  const auto expanded = at::expand_inplace(self, source, "copy_");
  if (self.numel() == 0) return self;
  CopyDefined(self, *expanded, non_blocking);
  return self;
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor target = dst;
  return Copy(target, self, non_blocking);
}

at::Tensor CopyFromAndResize(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.sizes() != self.sizes()) dst.resize_(self.sizes());
  at::Tensor target = dst;
  return Copy(target, self, false);
}

// item(): waits for the stream, so that it also raises what went wrong before.
at::Scalar LocalScalarDense(const at::Tensor& self) {
  const at::Tensor host = at::empty({}, self.options().device(c10::kCPU));
  Guarded([&] {
    platform::Queue& queue = QueueOf(self);
    queue.CopyFromDevice(host.mutable_data_ptr(), AddressOf(self), self.element_size());
    queue.Synchronize();
  });
  return host.item();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", TORCH_FN(Copy));
  m.impl("_copy_from", TORCH_FN(CopyFrom));
  m.impl("_copy_from_and_resize", TORCH_FN(CopyFromAndResize));
  m.impl("_local_scalar_dense", TORCH_FN(LocalScalarDense));
}

}  // namespace neuron::aten
