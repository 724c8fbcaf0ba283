#include "distributed/peers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "support/error.h"

namespace neuron::distributed {

struct Peers::State {
  enum : uint32_t { kWell, kWriting, kFailed, kLeft };
  std::atomic<uint32_t> state;
  char reason[1020];  // complete once `state` is kFailed
};

size_t Peers::Bytes(int size) { return static_cast<size_t>(size) * sizeof(State); }

Peers::Peers(int rank, std::vector<int> group_ranks, char* memory)
    : rank_(rank), group_ranks_(std::move(group_ranks)), memory_(memory) {}

Peers::State& Peers::Of(int rank) const { return reinterpret_cast<State*>(memory_)[rank]; }

void Peers::Watch(const std::vector<int>& pids) {
  processes_.clear();
  for (const int pid : pids)
    processes_.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

void Peers::Fail(const std::string& reason) {
  State& own = Of(rank_);
  uint32_t well = State::kWell;
  if (!own.state.compare_exchange_strong(well, State::kWriting)) return;
  std::strncpy(own.reason, reason.c_str(), sizeof own.reason - 1);
  own.state.store(State::kFailed, std::memory_order_release);
}

void Peers::Leave() {
  uint32_t well = State::kWell;
  Of(rank_).state.compare_exchange_strong(well, State::kLeft);
}

bool Peers::Failed(int peer) const {
  return Of(peer).state.load(std::memory_order_acquire) == State::kFailed;
}

std::optional<std::string> Peers::Trouble(int peer) const {
  const State& state = Of(peer);
  const uint32_t seen = state.state.load(std::memory_order_acquire);
  if (seen == State::kFailed) return StrCat("rank ", GroupRank(peer), " failed: ", state.reason);
  if (seen == State::kLeft) return StrCat("rank ", GroupRank(peer), " has left the group");
  if (static_cast<size_t>(peer) >= processes_.size()) return std::nullopt;
  pollfd process{processes_[static_cast<size_t>(peer)].get(), POLLIN, 0};
  if (process.fd >= 0 && poll(&process, 1, 0) > 0)
    return StrCat("the process of rank ", GroupRank(peer), " has ended");
  return std::nullopt;
}

}  // namespace neuron::distributed
