#include "distributed/hosts.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "support/error.h"

namespace neuron::distributed {
namespace {

at::Tensor View(char* data, int64_t bytes) { return at::from_blob(data, {bytes}, at::kByte); }

std::chrono::milliseconds Until(Hosts::Deadline deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return std::max(left, std::chrono::milliseconds(1));
}

}  // namespace

Hosts::Hosts(std::vector<std::vector<int>> ranks, int rank,
             c10::intrusive_ptr<c10d::Backend> leaders)
    : ranks_(std::move(ranks)), rank_(rank), leaders_(std::move(leaders)) {
  own_ = HostOf(rank);
  for (const auto& host : ranks_) size_ += static_cast<int>(host.size());
  const bool leader = ranks_.size() > 1 && RanksOf(own_).front() == rank;
  NEURON_CHECK(leader == leads(), "leaders' group of rank ", rank);
}

int Hosts::HostOf(int rank) const {
  for (int host = 0; host < count(); ++host) {
    const auto& ranks = RanksOf(host);
    if (std::find(ranks.begin(), ranks.end(), rank) != ranks.end()) return host;
  }
  NEURON_THROW(kInternal, "rank ", rank, " is on no host of the group");
}

int Hosts::LocalOf(int rank) const {
  const auto& ranks = RanksOf(HostOf(rank));
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void Hosts::AllGather(const char* in, char* out, int64_t bytes, Deadline deadline) const {
  c10d::AllgatherOptions options;
  options.timeout = Until(deadline);
  std::vector<at::Tensor> inputs{View(const_cast<char*>(in), bytes)};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int host = 0; host < count(); ++host) outputs[0].push_back(View(out + host * bytes, bytes));
  leaders_->allgather(outputs, inputs, options)->wait(options.timeout);
}

void Hosts::Broadcast(char* data, int64_t bytes, int host, Deadline deadline) const {
  if (bytes == 0) return;
  c10d::BroadcastOptions options;
  options.timeout = Until(deadline);
  options.rootRank = host;
  std::vector<at::Tensor> tensors{View(data, bytes)};
  leaders_->broadcast(tensors, options)->wait(options.timeout);
}

}  // namespace neuron::distributed
