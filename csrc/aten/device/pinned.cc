#include "aten/device/pinned.h"

#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <map>
#include <mutex>

namespace neuron::aten {
namespace {

struct Blocks {
  std::mutex mutex;
  std::map<const char*, size_t> sizes;  // by start
};

Blocks& All() {
  static auto* const blocks = new Blocks();  // tensors may be freed after static destruction
  return *blocks;
}

void Free(void* data) {
  {
    std::lock_guard lock(All().mutex);
    All().sizes.erase(static_cast<const char*>(data));
  }
  c10::free_cpu(data);
}

class Pinned final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &Free, c10::Device(c10::DeviceType::CPU)};
    void* data = c10::alloc_cpu(bytes);
    std::lock_guard lock(All().mutex);
    All().sizes[static_cast<const char*>(data)] = bytes;
    return {data, data, &Free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    std::memcpy(destination, source, count);
  }
};

}  // namespace

c10::Allocator* PinnedAllocator() {
  static Pinned allocator;
  return &allocator;
}

bool IsPinned(const void* data) {
  const auto* address = static_cast<const char*>(data);
  std::lock_guard lock(All().mutex);
  auto it = All().sizes.upper_bound(address);
  if (it == All().sizes.begin()) return false;
  --it;
  return address < it->first + it->second;
}

}  // namespace neuron::aten
