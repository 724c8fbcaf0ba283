#include "platform/host/memory.h"

#include <sys/mman.h>

#include "support/error.h"

namespace neuron::host {
namespace {

constexpr size_t kHugePage = 2 << 20;

}  // namespace

platform::DeviceAddress Hbm::Allocate(size_t bytes) {
  if (bytes == 0) NEURON_THROW(kInvalidArgument, "allocation of 0 bytes, expected at least 1");
  std::lock_guard lock(mutex_);
  if (bytes > static_cast<size_t>(total_ - used_)) {
    NEURON_THROW(kOutOfMemory, "the core's HBM of ", total_, " bytes has ", total_ - used_,
                 " bytes left, not ", bytes);
  }
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    NEURON_THROW(kOutOfMemory, "this machine has no ", bytes, " bytes of memory left");
  if (bytes >= 2 * kHugePage)
    madvise(address, bytes, MADV_HUGEPAGE);  // a hint: failure costs speed only
  used_ += static_cast<int64_t>(bytes);
  const auto key = reinterpret_cast<platform::DeviceAddress>(address);
  blocks_.emplace(key, bytes);
  return key;
}

void Hbm::Free(platform::DeviceAddress address) {
  std::lock_guard lock(mutex_);
  const auto it = blocks_.find(address);
  if (it == blocks_.end())
    NEURON_THROW(kInvalidArgument, "free of address ", address, ", which was not allocated here");
  munmap(reinterpret_cast<void*>(address), it->second);
  used_ -= static_cast<int64_t>(it->second);
  blocks_.erase(it);
}

platform::MemoryInfo Hbm::info() const {
  std::lock_guard lock(mutex_);
  return {used_, total_};
}

}  // namespace neuron::host
