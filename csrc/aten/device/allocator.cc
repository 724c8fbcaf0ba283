#include "aten/device/allocator.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>

#include "aten/device/errors.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace neuron::aten {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

platform::DeviceAddress AddressOf(const void* data) {
  return reinterpret_cast<platform::DeviceAddress>(data);
}

void Delete(void* data) { runtime::Free(AddressOf(data)); }

void Fill(StatArray& array, const runtime::Stat& stat) {
  Stat& out = array[static_cast<size_t>(StatType::AGGREGATE)];
  out.current = stat.current;
  out.peak = stat.peak;
  out.allocated = stat.allocated;
  out.freed = stat.freed;
}

class NeuronAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int device = runtime::CurrentDevice();
    const c10::Device place(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device));
    if (bytes == 0) return {nullptr, nullptr, &Delete, place};
    void* data = Guarded([&] {
      return reinterpret_cast<void*>(
          runtime::Allocate(device, bytes, runtime::CurrentStream(device)));
    });
    return {data, data, &Delete, place};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    auto& stream = runtime::CurrentStream(runtime::CurrentDevice());
    stream.queue().CopyOnDevice(AddressOf(destination), AddressOf(source), count);
  }

  bool initialized() override { return runtime::IsInitialized(); }
  void emptyCache(c10::MempoolId_t pool) override {
    (void)pool;
    Guarded([] {
      if (!runtime::IsInitialized()) return;
      for (int device = 0; device < runtime::DeviceCount(); ++device) runtime::EmptyCache(device);
    });
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Guarded([&] {
      runtime::RecordStream(AddressOf(data.get()),
                            runtime::GetStream(stream.device_index(), stream.id()));
    });
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const runtime::AllocatorStats stats =
        Guarded([&] { return runtime::GetAllocatorStats(device); });
    c10::CachingDeviceAllocator::DeviceStats out;
    Fill(out.allocation, stats.allocation);
    Fill(out.segment, stats.segment);
    Fill(out.active, stats.active);
    Fill(out.inactive_split, stats.inactive_split);
    Fill(out.allocated_bytes, stats.allocated_bytes);
    Fill(out.reserved_bytes, stats.reserved_bytes);
    Fill(out.active_bytes, stats.active_bytes);
    Fill(out.inactive_split_bytes, stats.inactive_split_bytes);
    Fill(out.requested_bytes, stats.requested_bytes);
    out.num_alloc_retries = stats.num_alloc_retries;
    out.num_ooms = stats.num_ooms;
    out.num_device_alloc = stats.num_device_alloc;
    out.num_device_free = stats.num_device_free;
    return out;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    Guarded([&] { runtime::ResetAccumulatedStats(device); });
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    Guarded([&] { runtime::ResetPeakStats(device); });
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return Guarded([&]() -> std::pair<size_t, size_t> {
      const auto info = runtime::GetDevice(device).memory();
      return {static_cast<size_t>(info.total - info.used), static_cast<size_t>(info.total)};
    });
  }
};

}  // namespace

c10::DeviceAllocator* Allocator() {
  static NeuronAllocator allocator;
  return &allocator;
}

void ResizeStorage(c10::StorageImpl* storage, size_t bytes) {
  TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
  c10::OptionalDeviceGuard guard(storage->device());
  c10::DataPtr fresh = Allocator()->allocate(bytes);
  const size_t kept = std::min(bytes, storage->nbytes());
  if (kept > 0) {
    auto& stream = runtime::CurrentStream(storage->device().index());
    Guarded([&] {
      stream.queue().CopyOnDevice(AddressOf(fresh.get()), AddressOf(storage->data()), kept);
    });
  }
  storage->set_data_ptr_noswap(std::move(fresh));
  storage->set_nbytes(bytes);
}

}  // namespace neuron::aten
