// Host memory that copies to and from the device may use asynchronously.
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include <memory>

namespace neuron::aten {

// Page-aligned blocks. Keeps none that are free: the C library does.
at::HostAllocator* PinnedAllocator();
// The block of PinnedAllocator that holds this address, null if none does. Whoever keeps it keeps
// the memory, after its tensor was freed too: a copy that is still under way does.
std::shared_ptr<const void> PinnedBlock(const void* data);

}  // namespace neuron::aten
