// HBM of one software NeuronCore: anonymous memory, counted against a budget, backed by pages only
// when touched.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "platform/driver.h"

namespace neuron::host {

class Hbm {
 public:
  explicit Hbm(int64_t total) : total_(total) {}
  platform::DeviceAddress Allocate(size_t bytes);
  void Free(platform::DeviceAddress address);
  platform::MemoryInfo info() const;

 private:
  const int64_t total_;
  mutable std::mutex mutex_;
  int64_t used_ = 0;
  std::unordered_map<platform::DeviceAddress, size_t> blocks_;
};

}  // namespace neuron::host
