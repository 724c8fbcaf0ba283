// One direction between two ranks of a host: a stream of bytes through a ring in shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace neuron::distributed {

// One rank writes, the other reads, each from one thread at a time. Never blocks.
class Channel {
 public:
  static constexpr size_t kRingBytes = 256 << 10;
  struct State {
    alignas(64) std::atomic<uint64_t> written;  // bytes ever
    alignas(64) std::atomic<uint64_t> read;
    alignas(64) char ring[kRingBytes];
  };

  explicit Channel(State& state) : state_(state) {}
  size_t Writable() const;
  size_t Readable() const;
  // Moves at most n bytes; returns how many.
  size_t Write(const char* data, size_t n);
  size_t Read(char* data, size_t n);

 private:
  State& state_;
};

// What a rank sleeps on until a peer has something for it. Several threads may ring.
class Bell {
 public:
  struct State {
    alignas(64) std::atomic<uint32_t> rung;
    std::atomic<uint32_t> sleepers;
  };
  explicit Bell(State& state) : state_(state) {}
  uint32_t Count() const { return state_.rung.load(std::memory_order_seq_cst); }
  void Ring();
  // Until Count() differs from `seen`, at most kPeerCheck if `limited`; may return early.
  void Sleep(uint32_t seen, bool limited);

 private:
  State& state_;
};

}  // namespace neuron::distributed
