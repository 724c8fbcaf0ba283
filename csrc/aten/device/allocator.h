// c10's view of the device's allocator.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

namespace neuron::aten {

c10::DeviceAllocator* Allocator();

// Gives the storage `bytes` bytes, keeping the contents that fit.
void ResizeStorage(c10::StorageImpl* storage, size_t bytes);

}  // namespace neuron::aten
