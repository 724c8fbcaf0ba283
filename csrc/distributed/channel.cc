#include "distributed/channel.h"

#include <algorithm>
#include <cstring>

#include "distributed/shared_file.h"

namespace neuron::distributed {

size_t Channel::Writable() const {
  return kRingBytes - (state_.written.load(std::memory_order_relaxed) -
                       state_.read.load(std::memory_order_acquire));
}

size_t Channel::Readable() const {
  return state_.written.load(std::memory_order_acquire) -
         state_.read.load(std::memory_order_relaxed);
}

size_t Channel::Write(const char* data, size_t n) {
  n = std::min(n, Writable());
  if (n == 0) return 0;
  const uint64_t position = state_.written.load(std::memory_order_relaxed);
  const size_t start = position % kRingBytes;
  const size_t head = std::min(n, kRingBytes - start);
  std::memcpy(state_.ring + start, data, head);
  std::memcpy(state_.ring, data + head, n - head);
  state_.written.store(position + n, std::memory_order_release);
  return n;
}

size_t Channel::Read(char* data, size_t n) {
  n = std::min(n, Readable());
  if (n == 0) return 0;
  const uint64_t position = state_.read.load(std::memory_order_relaxed);
  const size_t start = position % kRingBytes;
  const size_t head = std::min(n, kRingBytes - start);
  std::memcpy(data, state_.ring + start, head);
  std::memcpy(data + head, state_.ring, n - head);
  state_.read.store(position + n, std::memory_order_release);
  return n;
}

void Bell::Ring() {
  state_.rung.fetch_add(1, std::memory_order_seq_cst);
  if (state_.sleepers.load(std::memory_order_seq_cst) != 0) FutexWakeAll(state_.rung);
}

void Bell::Sleep(uint32_t seen, bool limited) {
  state_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  if (Count() == seen) FutexWait(state_.rung, seen, limited ? kPeerCheck : std::chrono::hours(1));
  state_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace neuron::distributed
