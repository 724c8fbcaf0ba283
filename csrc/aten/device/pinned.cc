#include "aten/device/pinned.h"

#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace neuron::aten {
namespace {

constexpr size_t kPage = 4096;

struct Block {
  std::shared_ptr<void> memory;
  size_t bytes = 0;
};

struct Blocks {
  std::mutex mutex;
  std::map<const char*, Block> by_start;
  at::HostStats stats;
};

Blocks& All() {
  static auto* const blocks = new Blocks();  // tensors may be freed after static destruction
  return *blocks;
}

// Under the lock: one block more (blocks 1) or less (-1).
void Count(int blocks, size_t bytes) {
  at::HostStats& stats = All().stats;
  const auto change = [&](auto& stat, size_t amount) {
    if (blocks > 0) {
      stat.increase(amount);
    } else {
      stat.decrease(amount);
    }
  };
  change(stats.active_requests, 1);
  change(stats.allocations, 1);
  change(stats.active_bytes, bytes);
  change(stats.allocated_bytes, bytes);
}

auto Each(at::HostStats& stats) {
  return std::array{&stats.active_requests, &stats.active_bytes, &stats.allocations,
                    &stats.allocated_bytes};
}

void Free(void* data) {
  if (data == nullptr) return;
  Block freed;  // released after the lock
  std::lock_guard lock(All().mutex);
  const auto it = All().by_start.find(static_cast<const char*>(data));
  freed = std::move(it->second);
  All().by_start.erase(it);
  Count(-1, freed.bytes);
  ++All().stats.num_host_free;
}

class Pinned final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (bytes == 0) return {nullptr, nullptr, &Free, cpu};
    const size_t rounded = bytes > SIZE_MAX - kPage ? 0 : (bytes + kPage - 1) / kPage * kPage;
    void* data = rounded == 0 ? nullptr : std::aligned_alloc(kPage, rounded);
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "cannot allocate ", bytes,
                     " bytes of pinned host memory");
    std::lock_guard lock(All().mutex);
    All().by_start[static_cast<const char*>(data)] = {std::shared_ptr<void>(data, &std::free),
                                                      bytes};
    Count(1, bytes);
    ++All().stats.num_host_alloc;
    return {data, data, &Free, cpu};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    std::memcpy(destination, source, count);
  }

  // A copy keeps its block itself (PinnedBlock), on whatever stream it is.
  bool record_event(void* data, void* /*context*/, c10::Stream /*stream*/) override {
    return PinnedBlock(data) != nullptr;
  }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    std::lock_guard lock(All().mutex);
    return All().stats;
  }
  void reset_accumulated_stats() override {
    std::lock_guard lock(All().mutex);
    at::HostStats& stats = All().stats;
    for (auto* stat : Each(stats)) stat->reset_accumulated();
    stats.num_host_alloc = stats.num_host_free = 0;
  }
  void reset_peak_stats() override {
    std::lock_guard lock(All().mutex);
    for (auto* stat : Each(All().stats)) stat->reset_peak();
  }
};

}  // namespace

at::HostAllocator* PinnedAllocator() {
  static Pinned allocator;
  return &allocator;
}

std::shared_ptr<const void> PinnedBlock(const void* data) {
  const auto* address = static_cast<const char*>(data);
  std::lock_guard lock(All().mutex);
  auto it = All().by_start.upper_bound(address);
  if (it == All().by_start.begin()) return nullptr;
  --it;
  return address < it->first + it->second.bytes ? it->second.memory : nullptr;
}

}  // namespace neuron::aten
