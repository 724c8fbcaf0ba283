// The c10d backend "neuron": collectives of tensors on NeuronCores, in stream order.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/peers.h"
#include "distributed/shared_file.h"
#include "distributed/transfers.h"
#include "distributed/work.h"

namespace neuron::distributed {

// The ranks of each host, hosts in the order of their first ranks. Every rank calls it once before
// it makes the group. Throws on a timeout.
std::vector<std::vector<int>> FindHosts(c10d::Store& store, int rank, int size,
                                        std::chrono::milliseconds timeout);

// A collective runs on the current stream, an asynchronous one on a stream of the group's own; the
// collectives of a group never overlap. Between hosts the
// first ranks of each use `leaders`; messages stay on a host.
class ProcessGroupNeuron final : public c10d::Backend {
 public:
  // Blocks until this host's ranks have come. Throws on a timeout. hosts: of FindHosts. leaders: a
  // group of the hosts' first ranks in the order of the hosts, null in other ranks or for one host.
  ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                     std::vector<std::vector<int>> hosts, c10::intrusive_ptr<c10d::Backend> leaders,
                     std::chrono::milliseconds timeout);

  const std::string getBackendName() const override { return "neuron"; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void startCoalescing() override;
  c10::intrusive_ptr<c10d::Work> endCoalescing() override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }

  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  // outputs: by rank, then as inputs.
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  // Blocks the caller; its error names every rank that did not come.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;
  // Ends what is pending, here and in the other ranks; the group is of no use any more.
  void abort() override;
  // Messages make progress beside the streams, all at once: see Transfers.
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

 private:
  class Call;
  friend class Call;
  // What the tasks of streams use, which may outlive the group's Python object.
  class Shared {
   public:
    Shared(Hosts group_hosts, std::unique_ptr<SharedFile> file);
    ~Shared();
    // The same for all ranks.
    static size_t Bytes(int size);
    // Why nothing is possible any more; empty if all is well.
    std::string Broken();
    void Break(const std::string& reason);

   private:
    const std::unique_ptr<SharedFile> file_;
    std::mutex mutex_;
    std::string broken_;
    int abort_id_ = -1;

   public:
    const Hosts hosts;
    Peers peers;
    Segment segment;
    Transfers transfers;
  };
  void Connect(c10d::Store& store, Hosts hosts);
  std::chrono::milliseconds TimeoutOr(std::chrono::milliseconds timeout) const {
    return timeout == c10d::kUnsetTimeout ? timeout_ : timeout;
  }

  // Every Work goes through it.
  WorkPtr Issued(WorkPtr work);
  WorkPtr Together(std::vector<WorkPtr> works) const;
  WorkPtr Transmit(const at::Tensor& tensor, bool sends, int peer, int tag);

  std::chrono::milliseconds timeout_;
  std::shared_ptr<Shared> shared_;
  uint64_t sends_ = 0, receives_ = 0;
  std::optional<std::vector<WorkPtr>> coalescing_;
  uint64_t sequence_ = 0;
  runtime::Stream* own_stream_ = nullptr;   // of asynchronous collectives
  runtime::Stream* last_stream_ = nullptr;  // of the last collective
  std::shared_ptr<platform::Event> last_done_;
};

}  // namespace neuron::distributed
