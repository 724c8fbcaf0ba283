// Copies between host and device, within a core and between cores.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>

#include "aten/device/errors.h"
#include "aten/device/pinned.h"
#include "aten/dtype.h"
#include "aten/fallback.h"
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

bool MayOverlap(const at::Tensor& dst, const at::Tensor& src) {
  // Tensors with gaps are too hard for get_overlap_status, even if they share no memory.
  return dst.storage().is_alias_of(src.storage()) &&
         at::get_overlap_status(dst, src) != at::MemOverlapStatus::No;
}

// The tensor's bits as integers, for dtypes that the device stores but does not compute with.
at::Tensor AsIntegers(const at::Tensor& tensor) {
  constexpr at::ScalarType kIntegers[] = {at::kByte, at::kShort, at::kInt, at::kLong};
  for (const at::ScalarType integer : kIntegers) {
    if (static_cast<int64_t>(c10::elementSize(integer)) == tensor.element_size())
      return tensor.view(integer);
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "strided copies of ", tensor.scalar_type(),
                              " are not implemented on neuron: copy through .cpu()");
}

void HostToDeviceBytes(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  const size_t bytes = src.nbytes();
  platform::Queue& queue = QueueOf(dst);
  auto pinned = non_blocking ? PinnedBlock(src.const_data_ptr()) : nullptr;
  Guarded([&] {
    if (pinned != nullptr) {
      queue.CopyToDevice(AddressOf(dst), src.const_data_ptr(), bytes, std::move(pinned));
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

void StridedCopy(const at::Tensor& dst, const at::Tensor& src);

void HostToDevice(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (SameDenseLayout(dst, src)) return HostToDeviceBytes(dst, src, non_blocking);
  // Convert on the side that moves fewer bytes.
  const bool convert_here = src.element_size() > dst.element_size() ||
                            !ToDType(src.scalar_type()) || !ToDType(dst.scalar_type()) ||
                            src.is_complex() != dst.is_complex();
  const at::Tensor prepared = (convert_here ? src.to(dst.scalar_type()) : src).contiguous();
  if (SameDenseLayout(dst, prepared)) return HostToDeviceBytes(dst, prepared, non_blocking);
  const at::Tensor staged = EmptyOnDevice(prepared, prepared.scalar_type(), dst.device());
  HostToDeviceBytes(staged, prepared, non_blocking);
  StridedCopy(dst, staged);
}

void DeviceToHostBytes(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  platform::Queue& queue = QueueOf(src);
  auto pinned = non_blocking ? PinnedBlock(dst.const_data_ptr()) : nullptr;
  Guarded([&] {
    queue.CopyFromDevice(dst.mutable_data_ptr(), AddressOf(src), src.nbytes());
    if (pinned == nullptr) {
      queue.Synchronize();
    } else if (!queue.Idle()) {
      // The tensor may be freed before the copy was done; its memory may not.
      queue.Enqueue([block = std::move(pinned)] {});
    }
  });
}

void DeviceToHost(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (SameDenseLayout(dst, src)) return DeviceToHostBytes(dst, src, non_blocking);
  at::Tensor dense = src;
  if (!src.is_non_overlapping_and_dense()) {
    dense = EmptyOnDevice(src, src.scalar_type(), src.device());
    StridedCopy(dense, src);
  }
  const at::Tensor host =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(c10::kCPU));
  DeviceToHostBytes(host, dense, false);
  dst.copy_(host);
}

// Any dtypes and strides on one core. The device converts only between what it computes with; other
// dtypes (float8, ...) keep their bits here and are converted on the CPU.
void StridedCopy(const at::Tensor& dst, const at::Tensor& src) {
  if (ToDType(dst.scalar_type()) && ToDType(src.scalar_type())) return LaunchStridedCopy(dst, src);
  if (dst.scalar_type() == src.scalar_type())
    return LaunchStridedCopy(AsIntegers(dst), AsIntegers(src));
  NoteFallback("aten::copy_", static_cast<int64_t>(src.nbytes() + dst.nbytes()));
  const at::Tensor host = at::empty(src.sizes(), src.options().device(c10::kCPU));
  DeviceToHost(host, src, false);
  HostToDevice(dst, host, false);
}

void WithinCore(const at::Tensor& dst, const at::Tensor& src) {
  if (AddressOf(dst) == AddressOf(src) && dst.strides() == src.strides() &&
      dst.scalar_type() == src.scalar_type())
    return;
  if (MayOverlap(dst, src)) {
    // Read everything before anything is written.
    const at::Tensor copy = EmptyOnDevice(src, src.scalar_type(), src.device());
    StridedCopy(copy, src);
    return StridedCopy(dst, copy);
  }
  if (SameDenseLayout(dst, src)) {
    Guarded([&] { QueueOf(dst).CopyOnDevice(AddressOf(dst), AddressOf(src), src.nbytes()); });
    return;
  }
  StridedCopy(dst, src);
}

// The source core's queue makes the data dense, the destination's fetches it; each waits for the
// other.
void BetweenCores(const at::Tensor& dst, const at::Tensor& src) {
  at::Tensor dense = src;
  if (!src.is_contiguous()) {
    const c10::DeviceGuard guard(src.device());
    dense = EmptyOnDevice(src, src.scalar_type(), src.device());
    StridedCopy(dense, src);
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
  if (!arrived.is_same(dst)) StridedCopy(dst, arrived);
}

void CopyDefined(const at::Tensor& dst, const at::Tensor& src, bool non_blocking) {
  if (dst.is_complex() && src.is_complex()) {
    return CopyDefined(at::view_as_real(dst), at::view_as_real(src), non_blocking);
  }
  const bool to_device = dst.is_privateuseone();
  const bool from_device = src.is_privateuseone();
  if (to_device && from_device && dst.is_complex()) {
    const at::Tensor parts = at::view_as_real(dst);
    CopyDefined(parts.select(-1, 0), src, non_blocking);
    parts.select(-1, 1).zero_();  // last: the source may be these
    return;
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

// What a lazily conjugated or negated tensor is a view of.
at::Tensor WithoutBits(const at::Tensor& lazy) {
  const at::Tensor out = lazy.is_conj() ? lazy.conj() : lazy;
  return out.is_neg() ? out._neg_view() : out;
}

// Conjugates and negates `plain` in place as the bits of `lazy` say.
void ApplyBits(const at::Tensor& plain, const at::Tensor& lazy) {
  const at::Tensor parts = plain.is_complex() ? at::view_as_real(plain) : plain;
  if (lazy.is_neg()) parts.neg_();
  if (lazy.is_conj()) parts.select(-1, 1).neg_();
}

// The values of a lazy tensor. Never by clone() on the device, which copies the lazy tensor again.
at::Tensor ResolveBits(const at::Tensor& src) {
  if (!src.is_conj() && !src.is_neg()) return src;
  if (!src.is_privateuseone()) return src.resolve_conj().resolve_neg();
  const at::Tensor plain = WithoutBits(src);
  at::Tensor out = at::empty_like(plain);
  CopyDefined(out, plain, false);
  ApplyBits(out, src);
  return out;
}

at::Tensor& Copy(at::Tensor& self, const at::Tensor& src, bool non_blocking) {
  if (self.is_same(src)) return self;
  TORCH_CHECK(self.defined() && src.defined(), "copy_ needs defined tensors");
  if (self.is_conj() || self.is_neg()) {
    at::Tensor plain = WithoutBits(self);
    Copy(plain, src, false);  // what follows may run on the host
    ApplyBits(plain, self);
    return self;
  }
  at::assert_no_internal_overlap(self);
  const at::Tensor source = ResolveBits(src);
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
