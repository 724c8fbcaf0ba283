// What a rank knows of the others of its group: who failed and why, whose process has ended.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "support/fd.h"

namespace neuron::distributed {

// Thread-safe after Watch.
class Peers {
 public:
  // Of the shared memory that it uses.
  static size_t Bytes(int size);

  // rank: on this host. group_ranks: what this host's ranks are called in the group and in errors.
  Peers(int rank, std::vector<int> group_ranks, char* memory);
  // Watches the processes of the group: pids by rank.
  void Watch(const std::vector<int>& pids);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(group_ranks_.size()); }
  int GroupRank(int rank) const { return group_ranks_[static_cast<size_t>(rank)]; }
  // Tells the others that this rank gave up; the first reason stays.
  void Fail(const std::string& reason);
  // Tells the others that this rank will take part in nothing more.
  void Leave();
  bool Failed(int peer) const;
  // "rank 1 failed: ...", "the process of rank 1 has ended", "rank 1 has left the group"; nothing
  // if all is well.
  std::optional<std::string> Trouble(int peer) const;

 private:
  struct State;
  State& Of(int rank) const;

  const int rank_;
  const std::vector<int> group_ranks_;
  char* const memory_;
  std::vector<Fd> processes_;  // pidfds: readable once the process has ended
};

}  // namespace neuron::distributed
