// Host memory that copies to and from the device may use asynchronously.
#pragma once

#include <c10/core/Allocator.h>

#include <memory>

namespace neuron::aten {

// Page-aligned blocks.
c10::Allocator* PinnedAllocator();
// The block of PinnedAllocator that holds this address, null if none does. Whoever keeps it keeps
// the memory, after its tensor was freed too: a copy that is still under way does.
std::shared_ptr<const void> PinnedBlock(const void* data);

}  // namespace neuron::aten
