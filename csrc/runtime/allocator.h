// The caching allocator of a core: blocks are reused in stream order without waiting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "platform/executable.h"
#include "runtime/stream.h"

namespace neuron::runtime {

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;  // allocated, freed: running totals
};

struct AllocatorStats {
  Stat allocation, segment, active, inactive_split;  // counts
  Stat allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  int64_t num_alloc_retries = 0, num_ooms = 0, num_device_alloc = 0, num_device_free = 0;
  int64_t allocation_requests = 0, num_tensor_frees = 0;  // calls of Allocate and Free
};

struct BlockSnapshot {
  platform::DeviceAddress address;
  int64_t size, requested_size;
  bool allocated, active;  // active: allocated, or freed but still in use by another stream
};
struct SegmentSnapshot {
  platform::DeviceAddress address;
  int64_t size;
  int64_t stream;
  bool is_large;
  std::vector<BlockSnapshot> blocks;
};

// Every function is thread-safe; `device` in [0, DeviceCount()).
// Allocate: bytes > 0, aligned to 256; on exhaustion frees cached segments, waits for the device,
// retries, then throws kOutOfMemory with a summary of sizes and the largest live blocks.
platform::DeviceAddress Allocate(int device, size_t bytes, Stream& stream);
// Returns a block. Its memory may be reused at once by later work of the stream that it was
// allocated on, and after the recorded streams reached this point.
void Free(platform::DeviceAddress address);
// The block is also used on `stream`.
void RecordStream(platform::DeviceAddress address, Stream& stream);
// Size of the block at exactly this address, 0 if there is none; device in *device if not null.
int64_t BlockSize(platform::DeviceAddress address, int* device = nullptr);
// Returns cached segments to the device, waiting for the work that uses them.
void EmptyCache(int device);
AllocatorStats GetAllocatorStats(int device);
void ResetPeakStats(int device);
void ResetAccumulatedStats(int device);
std::vector<SegmentSnapshot> Snapshot(int device);
// Limits the core's allocated bytes to fraction (0, 1] of its HBM.
void SetMemoryFraction(int device, double fraction);
double GetMemoryFraction(int device);

}  // namespace neuron::runtime
