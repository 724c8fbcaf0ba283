// Scratch memory of an engine: one growing block per thread and purpose, reused from call to call.
#pragma once

#include <cstddef>

namespace neuron::kernels {

enum class Scratch { kShared, kOwn, kSums, kPartial, kResult, kKept };

// At least `bytes` bytes, aligned to a cache line, of this thread; valid until the thread's next
// call for the same purpose. Throws kOutOfMemory.
void* GetScratch(Scratch purpose, size_t bytes);
// The same, but null where there is no memory.
void* TryGetScratch(Scratch purpose, size_t bytes) noexcept;

}  // namespace neuron::kernels
