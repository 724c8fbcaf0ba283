#include "distributed/segment.h"

#include <algorithm>
#include <cstring>

#include "distributed/shared_file.h"
#include "support/error.h"

namespace neuron::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;

}  // namespace

std::string Text(const Description& d) {
  if (d.sequence == 0) return "none";
  std::string out = StrCat(d.collective, " number ", d.sequence);
  if (d.dtype[0] != 0) out += StrCat(" of ", d.elements, " elements of ", d.dtype);
  if (d.shape[0] != 0) out += StrCat(", shape ", d.shape);
  if (d.reduction[0] != 0) out += StrCat(", ", d.reduction);
  if (d.root >= 0) out += StrCat(", root ", d.root);
  return out;
}

bool Same(const Description& own, const Description& other) {
  return std::strcmp(own.collective, other.collective) == 0 &&
         std::strcmp(own.dtype, other.dtype) == 0 && std::strcmp(own.shape, other.shape) == 0 &&
         std::strcmp(own.reduction, other.reduction) == 0 && own.sequence == other.sequence &&
         own.root == other.root && (own.uniform == 0 || own.elements == other.elements);
}

struct Segment::RankHeader {
  std::atomic<uint32_t> arrived;  // low 32 bits of the step; the futex
  std::atomic<uint32_t> waiters;  // peers asleep on it
  Description description[2];
};

size_t Segment::Bytes(int size) {
  static_assert(sizeof(RankHeader) <= kPage);
  return static_cast<size_t>(size) * (kPage + 2 * kBufferBytes);
}

Segment::RankHeader& Segment::Header(int rank) const {
  return *reinterpret_cast<RankHeader*>(base_ + static_cast<size_t>(rank) * kPage);
}

char* Segment::Buffer(int rank) const {
  const size_t index = static_cast<size_t>(rank) * 2 + step_ % 2;
  return base_ + static_cast<size_t>(size_) * kPage + index * kBufferBytes;
}

void Segment::Arrive(const Description& description) {
  RankHeader& own = Header(rank_);
  own.description[step_ % 2] = description;
  own.arrived.store(static_cast<uint32_t>(step_), std::memory_order_seq_cst);
  if (own.waiters.load(std::memory_order_seq_cst) != 0) FutexWakeAll(own.arrived);
}

void Segment::WaitForAll(const Description& description, bool compare, Clock::time_point deadline) {
  for (int i = 1; i < size_; ++i) {
    const int peer = (rank_ + i) % size_;
    WaitForRank(peer, description, deadline);
    if (!compare) continue;
    Compare(peer, description);
    // It had come, and gave up: this rank is not to go on as if the group were whole.
    if (peers_.Failed(peer)) {
      NEURON_THROW(kFailedExecution, "rank ", Name(rank_), " gives up ", Text(description), ": ",
                   *peers_.Trouble(peer));
    }
  }
}

void Segment::WaitForRank(int peer, const Description& description, Clock::time_point deadline) {
  RankHeader& header = Header(peer);
  const auto target = static_cast<uint32_t>(step_);
  // Signed distance: the counter may wrap around.
  const auto missing = [&](uint32_t seen) { return static_cast<int32_t>(seen - target) < 0; };
  uint32_t seen = header.arrived.load(std::memory_order_acquire);
  if (!missing(seen)) return;
  header.waiters.fetch_add(1, std::memory_order_seq_cst);
  try {
    while (missing(seen = header.arrived.load(std::memory_order_seq_cst))) {
      CheckPeer(peer, description);
      const auto now = Clock::now();
      if (now >= deadline) {
        NEURON_THROW(kFailedExecution, "rank ", Name(rank_), " timed out in ", Text(description),
                     ": ", Missing());
      }
      FutexWait(header.arrived, seen, std::min<Clock::duration>(kPeerCheck, deadline - now));
    }
  } catch (...) {
    header.waiters.fetch_sub(1, std::memory_order_seq_cst);
    throw;
  }
  header.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

std::string Segment::Missing() const {
  std::string out;
  for (int peer = 0; peer < size_; ++peer) {
    const RankHeader& header = Header(peer);
    const uint32_t seen = header.arrived.load(std::memory_order_acquire);
    if (peer == rank_ || static_cast<int32_t>(seen - static_cast<uint32_t>(step_)) >= 0) continue;
    out += StrCat(out.empty() ? "" : "; ", "rank ", Name(peer),
                  " did not come; its last collective is ", Text(header.description[seen % 2]));
  }
  return out;
}

void Segment::CheckPeer(int peer, const Description& description) const {
  auto trouble = peers_.Trouble(rank_);
  if (!trouble) trouble = peers_.Trouble(peer);
  // It may have come and left while this rank looked.
  if (trouble &&
      Header(peer).arrived.load(std::memory_order_acquire) != static_cast<uint32_t>(step_)) {
    NEURON_THROW(kFailedExecution, "rank ", Name(rank_), " gives up ", Text(description), ": ",
                 *trouble);
  }
}

void Segment::Compare(int peer, const Description& own) const {
  const Description& other = Header(peer).description[step_ % 2];
  if (!Same(own, other)) {
    NEURON_THROW(kFailedExecution, "ranks do not agree: rank ", Name(rank_), " is in ", Text(own),
                 "; rank ", Name(peer), " is in ", Text(other));
  }
}

void Segment::Fail(const std::string& reason) {
  peers_.Fail(reason);
  FutexWakeAll(Header(rank_).arrived);
}

}  // namespace neuron::distributed
