// The memory that the ranks of one group on one host share, and the steps in which they use it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "distributed/peers.h"

namespace neuron::distributed {

// What a rank is about to do; compared between ranks so that a mismatch is an error, not garbage.
struct Description {
  char collective[24] = {};  // "all_reduce"
  char dtype[16] = {};       // "BFloat16"
  char shape[64] = {};       // "[2, 3]"; empty unless TORCH_DISTRIBUTED_DEBUG=DETAIL
  char reduction[16] = {};   // "SUM"; empty if it does not reduce
  uint64_t sequence = 0;     // number of the collective in its group, from 1
  int64_t elements = 0;      // of the input; compared only if `uniform`
  int32_t root = -1;         // rank in the group; -1 if there is none
  int32_t uniform = 1;       // every rank has the same number of elements
};

// "all_reduce number 2 of 4 elements of Float, SUM"
std::string Text(const Description& description);
bool Same(const Description& own, const Description& other);

// The collectives' part of a group's shared memory. A rank has two buffers, used in turn, and a
// counter of steps. A step: write own buffer, Arrive, WaitForAll, read the peers' buffers. A rank
// writes a buffer again two steps later; all peers have arrived at the step between by then, so
// they have read it. Used by one thread at a time.
class Segment {
 public:
  static constexpr size_t kBufferBytes = 512 << 10;
  static size_t Bytes(int size);

  // memory: shared, zeros at first.
  Segment(Peers& peers, char* memory)
      : peers_(peers), rank_(peers.rank()), size_(peers.size()), base_(memory) {}

  int rank() const { return rank_; }
  int size() const { return size_; }
  uint64_t step() const { return step_; }
  // The buffers of the step being prepared or, after Arrive, of that step.
  char* Buffer(int rank) const;

  // Begins a step: the buffer of this rank may be written after it.
  void Begin() { ++step_; }
  // Tells the peers that the buffer is written.
  void Arrive(const Description& description);
  // Throws kFailedExecution naming ranks when one died, failed, or does not come before the
  // deadline, or came with another collective (only `compare`).
  void WaitForAll(const Description& description, bool compare,
                  std::chrono::steady_clock::time_point deadline);
  // Tells the peers that this rank gave up, so that they do too.
  void Fail(const std::string& reason);

 private:
  struct RankHeader;
  int Name(int rank) const { return peers_.GroupRank(rank); }
  RankHeader& Header(int rank) const;
  // "rank 1 did not come; its last collective is ...", for each that is missing.
  std::string Missing() const;
  void WaitForRank(int peer, const Description& description,
                   std::chrono::steady_clock::time_point deadline);
  void CheckPeer(int peer, const Description& description) const;
  void Compare(int peer, const Description& own) const;

  Peers& peers_;
  const int rank_, size_;
  char* const base_;
  uint64_t step_ = 0;
};

}  // namespace neuron::distributed
