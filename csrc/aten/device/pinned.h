// Host memory that copies to and from the device may use asynchronously.
#pragma once

#include <c10/core/Allocator.h>

namespace neuron::aten {

c10::Allocator* PinnedAllocator();
// True for any address inside a block of PinnedAllocator.
bool IsPinned(const void* data);

}  // namespace neuron::aten
