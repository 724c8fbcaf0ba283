// How the ranks of a group lie on hosts, and the way between the hosts.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

namespace neuron::distributed {

// The first rank of each host is its leader; leaders exchange bytes over the network with an engine
// that torch ships (Gloo). Every member function that moves bytes is called by all leaders.
class Hosts {
 public:
  using Deadline = std::chrono::steady_clock::time_point;
  // ranks: those of each host, ascending, every rank once. leaders: null unless this rank leads.
  Hosts(std::vector<std::vector<int>> ranks, int rank, c10::intrusive_ptr<c10d::Backend> leaders);

  int count() const { return static_cast<int>(ranks_.size()); }
  int own() const { return own_; }
  int size() const { return size_; }
  int rank() const { return rank_; }
  const std::vector<int>& RanksOf(int host) const { return ranks_[static_cast<size_t>(host)]; }
  int HostOf(int rank) const;
  // Position of the rank on its host.
  int LocalOf(int rank) const;
  bool leads() const { return leaders_ != nullptr; }

  // in: [bytes], out: [hosts][bytes]. All throw c10::Error after the deadline or if a host is lost.
  void AllGather(const char* in, char* out, int64_t bytes, Deadline deadline) const;
  void Broadcast(char* data, int64_t bytes, int host, Deadline deadline) const;

 private:
  const std::vector<std::vector<int>> ranks_;
  const int rank_;
  int own_ = 0, size_ = 0;
  const c10::intrusive_ptr<c10d::Backend> leaders_;
};

}  // namespace neuron::distributed
