#include "distributed/segment.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

#include "support/error.h"

namespace neuron::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096;
// How often a sleeping rank looks whether its peers still live.
constexpr auto kPeerCheck = std::chrono::milliseconds(100);

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen, Clock::duration limit) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  timespec time{};
  time.tv_sec = static_cast<time_t>(ns / 1000000000);
  time.tv_nsec = static_cast<long>(ns % 1000000000);
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string Text(const Description& d) {
  std::string out = StrCat(d.collective, " number ", d.sequence);
  if (d.dtype[0] != 0) out += StrCat(" of ", d.elements, " elements of ", d.dtype);
  if (d.reduction[0] != 0) out += StrCat(", ", d.reduction);
  if (d.root >= 0) out += StrCat(", root ", d.root);
  return out;
}

}  // namespace

struct Segment::RankHeader {
  std::atomic<uint32_t> arrived;  // low 32 bits of the step; the futex
  std::atomic<uint32_t> waiters;  // peers asleep on it
  std::atomic<uint32_t> failed;   // 1: `reason` is written
  char reason[512];
  Description description[2];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

Segment::Segment(int rank, int size) : rank_(rank), size_(size) {
  file_ = Fd(memfd_create("torch_neuronx_group", MFD_CLOEXEC));
  if (file_.get() < 0)
    NEURON_THROW(kInternal, "memfd_create for a process group failed: ", std::strerror(errno));
  handle_ = StrCat("/proc/", getpid(), "/fd/", file_.get());
  Map(true);
}

Segment::Segment(int rank, int size, const std::string& handle)
    : rank_(rank), size_(size), handle_(handle) {
  file_ = Fd(open(handle.c_str(), O_RDWR | O_CLOEXEC));
  if (file_.get() < 0) {
    NEURON_THROW(kInternal, "cannot open the group's shared memory ", handle, ": ",
                 std::strerror(errno),
                 ". All ranks of a host must run as one user in one PID namespace");
  }
  Map(false);
}

Segment::~Segment() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void Segment::Map(bool create) {
  static_assert(sizeof(RankHeader) <= kPage);
  bytes_ = static_cast<size_t>(size_) * (kPage + 2 * kBufferBytes);
  if (create && ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0)
    NEURON_THROW(kInternal, "cannot size the group's shared memory: ", std::strerror(errno));
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (base == MAP_FAILED)
    NEURON_THROW(kInternal, "cannot map the group's shared memory: ", std::strerror(errno));
  base_ = static_cast<char*>(base);
}

Segment::RankHeader& Segment::Header(int rank) const {
  return *reinterpret_cast<RankHeader*>(base_ + static_cast<size_t>(rank) * kPage);
}

char* Segment::Buffer(int rank) const {
  const size_t index = static_cast<size_t>(rank) * 2 + step_ % 2;
  return base_ + static_cast<size_t>(size_) * kPage + index * kBufferBytes;
}

void Segment::WatchPeers(const std::vector<int>& pids) {
  peers_.clear();
  for (const int pid : pids) peers_.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
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
    if (compare) Compare(peer, description);
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
        NEURON_THROW(kFailedExecution, "rank ", rank_, " timed out in ", Text(description),
                     ": rank ", peer, " did not come; its last collective is ",
                     Text(header.description[seen % 2]));
      }
      FutexWait(header.arrived, seen, std::min<Clock::duration>(kPeerCheck, deadline - now));
    }
  } catch (...) {
    header.waiters.fetch_sub(1, std::memory_order_seq_cst);
    throw;
  }
  header.waiters.fetch_sub(1, std::memory_order_seq_cst);
}

void Segment::CheckPeer(int peer, const Description& description) const {
  const RankHeader& header = Header(peer);
  if (header.failed.load(std::memory_order_acquire) != 0) {
    NEURON_THROW(kFailedExecution, "rank ", rank_, " gives up ", Text(description), ": rank ", peer,
                 " failed: ", header.reason);
  }
  if (static_cast<size_t>(peer) >= peers_.size()) return;
  pollfd poll_peer{peers_[static_cast<size_t>(peer)].get(), POLLIN, 0};
  if (poll_peer.fd >= 0 && poll(&poll_peer, 1, 0) > 0 &&
      header.arrived.load(std::memory_order_acquire) != static_cast<uint32_t>(step_)) {
    NEURON_THROW(kFailedExecution, "rank ", rank_, " gives up ", Text(description),
                 ": the process of rank ", peer, " has ended");
  }
}

void Segment::Compare(int peer, const Description& own) const {
  const Description& other = Header(peer).description[step_ % 2];
  const bool same = std::strcmp(own.collective, other.collective) == 0 &&
                    std::strcmp(own.dtype, other.dtype) == 0 &&
                    std::strcmp(own.reduction, other.reduction) == 0 &&
                    own.sequence == other.sequence && own.root == other.root &&
                    (own.uniform == 0 || own.elements == other.elements);
  if (!same) {
    NEURON_THROW(kFailedExecution, "ranks do not agree: rank ", rank_, " is in ", Text(own),
                 "; rank ", peer, " is in ", Text(other));
  }
}

void Segment::Fail(const std::string& reason) {
  RankHeader& own = Header(rank_);
  std::strncpy(own.reason, reason.c_str(), sizeof own.reason - 1);
  own.failed.store(1, std::memory_order_release);
  FutexWakeAll(own.arrived);
}

}  // namespace neuron::distributed
