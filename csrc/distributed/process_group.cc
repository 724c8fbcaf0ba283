#include "distributed/process_group.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "aten/device/errors.h"
#include "distributed/call.h"
#include "runtime/device.h"

namespace neuron::distributed {
namespace {

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string Text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// The same for all processes that can see each other under /proc.
std::string HostIdentity() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> space{};
  if (readlink("/proc/self/ns/pid", space.data(), space.size() - 1) < 0) return boot;
  return boot + " " + space.data();
}

}  // namespace

ProcessGroupNeuron::ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, std::chrono::milliseconds timeout)
    : Backend(rank, size), timeout_(timeout) {
  init();
  aten::Guarded([&] { Connect(*store); });
}

void ProcessGroupNeuron::Connect(c10d::Store& store) {
  const auto key = [](const char* name, int rank) { return StrCat("neuron/", name, "/", rank); };
  const std::string host = HostIdentity();
  store.set(key("host", rank_), Bytes(StrCat(getpid(), " ", host)));
  std::vector<int> pids;
  for (int r = 0; r < size_; ++r) {
    store.wait({key("host", r)}, timeout_);
    const std::string text = Text(store.get(key("host", r)));
    if (text.substr(text.find(' ') + 1) != host) {
      NEURON_THROW(kUnsupported, "ranks ", rank_, " and ", r,
                   " are on different hosts: the backend \"neuron\" does not span hosts yet. Use "
                   "one group per host and the backend \"gloo\" between them");
    }
    pids.push_back(std::stoi(text));
  }
  if (rank_ == 0) {
    shared_->segment = std::make_unique<Segment>(rank_, size_);
    store.set(key("segment", 0), Bytes(shared_->segment->handle()));
  } else {
    store.wait({key("segment", 0)}, timeout_);
    const std::string handle = Text(store.get(key("segment", 0)));
    shared_->segment = std::make_unique<Segment>(rank_, size_, handle);
  }
  shared_->segment->WatchPeers(pids);
  // Rank 0 must not leave before all have opened the memory.
  store.set(key("open", rank_), Bytes("1"));
  for (int r = 0; r < size_; ++r) store.wait({key("open", r)}, timeout_);
}

c10::intrusive_ptr<c10d::Work> ProcessGroupNeuron::endCoalescing() {
  // Its collectives are in one stream in order: a point after them is all there is to wait for.
  TORCH_CHECK(last_done_ != nullptr, "endCoalescing without a collective");
  return c10::make_intrusive<NeuronWork>(rank_, c10d::OpType::COALESCED, sequence_, *last_stream_,
                                         last_done_, std::make_shared<Outcome>(), Tensors(), false);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::barrier(const c10d::BarrierOptions& options) {
  Call call(*this, {c10d::OpType::BARRIER, "barrier", options.asyncOp, options.timeout},
            runtime::CurrentDevice());
  call.Submit([](const Round& round) { Barrier(round); });
  return call.Finish({}, true);
}

}  // namespace neuron::distributed
