#include "distributed/process_group.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <utility>

#include "aten/device/errors.h"
#include "distributed/call.h"
#include "runtime/device.h"
#include "support/interrupt.h"

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

// In slices, between which signals are handled.
void WaitForKey(c10d::Store& store, const std::string& key, std::chrono::milliseconds timeout) {
  constexpr auto kSlice = std::chrono::milliseconds(500);
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (interrupt::Waiter waiter;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left <= kSlice) return store.wait({key}, std::max(left, std::chrono::milliseconds(1)));
    try {
      return store.wait({key}, kSlice);
    } catch (const c10::DistStoreError&) {  // not there yet
    }
    waiter.Poll();
    waiter.Throw();
  }
}

}  // namespace

std::vector<std::vector<int>> FindHosts(c10d::Store& store, int rank, int size,
                                        std::chrono::milliseconds timeout) {
  const auto key = [](int r) { return StrCat("neuron/host/", r); };
  store.set(key(rank), Bytes(HostIdentity()));
  std::vector<std::string> names;
  std::vector<std::vector<int>> hosts;
  for (int r = 0; r < size; ++r) {
    WaitForKey(store, key(r), timeout);
    const std::string name = Text(store.get(key(r)));
    const auto at = std::find(names.begin(), names.end(), name) - names.begin();
    if (at == std::ssize(names)) {
      names.push_back(name);
      hosts.emplace_back();
    }
    hosts[static_cast<size_t>(at)].push_back(r);
  }
  return hosts;
}

ProcessGroupNeuron::ProcessGroupNeuron(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                       int size, std::vector<std::vector<int>> hosts,
                                       c10::intrusive_ptr<c10d::Backend> leaders,
                                       std::chrono::milliseconds timeout)
    : Backend(rank, size), timeout_(timeout) {
  init();
  aten::Guarded([&] { Connect(*store, Hosts(std::move(hosts), rank, std::move(leaders))); });
}

void ProcessGroupNeuron::Connect(c10d::Store& store, Hosts hosts) {
  const auto key = [](const char* name, int rank) { return StrCat("neuron/", name, "/", rank); };
  const std::vector<int> ranks = hosts.RanksOf(hosts.own());  // of this host
  const size_t bytes = Shared::Bytes(static_cast<int>(ranks.size()));
  std::unique_ptr<SharedFile> file;
  if (rank_ == ranks.front()) {
    file = std::make_unique<SharedFile>(bytes);
    store.set(key("memory", rank_), Bytes(file->handle()));
  } else {
    WaitForKey(store, key("memory", ranks.front()), timeout_);
    file = std::make_unique<SharedFile>(bytes, Text(store.get(key("memory", ranks.front()))));
  }
  shared_ = std::make_shared<Shared>(std::move(hosts), std::move(file));
  // Whoever made the memory must not leave before all have opened it.
  store.set(key("open", rank_), Bytes(std::to_string(getpid())));
  std::vector<int> pids;
  for (const int r : ranks) {
    WaitForKey(store, key("open", r), timeout_);
    pids.push_back(std::stoi(Text(store.get(key("open", r)))));
  }
  shared_->peers.Watch(pids);
}

namespace {

size_t PagesOf(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

size_t ProcessGroupNeuron::Shared::Bytes(int size) {
  return PagesOf(Peers::Bytes(size)) + PagesOf(Segment::Bytes(size)) + Transfers::Bytes(size);
}

ProcessGroupNeuron::Shared::Shared(Hosts group_hosts, std::unique_ptr<SharedFile> file)
    : file_(std::move(file)),
      hosts(std::move(group_hosts)),
      peers(hosts.LocalOf(hosts.rank()), hosts.RanksOf(hosts.own()), file_->data()),
      segment(peers, file_->data() + PagesOf(Peers::Bytes(peers.size()))),
      transfers(peers,
                file_->data() + PagesOf(Peers::Bytes(peers.size())) +
                    PagesOf(Segment::Bytes(peers.size())),
                [this](const std::string& reason) {
                  const std::lock_guard lock(mutex_);
                  if (broken_.empty()) broken_ = reason;
                }) {
  abort_id_ = interrupt::AddAbort([this] { Break("it was interrupted by a signal"); });
}

ProcessGroupNeuron::Shared::~Shared() {
  interrupt::RemoveAbort(abort_id_);
  peers.Leave();
}

std::string ProcessGroupNeuron::Shared::Broken() {
  const std::lock_guard lock(mutex_);
  return broken_;
}

void ProcessGroupNeuron::Shared::Break(const std::string& reason) {
  segment.Fail(reason);
  transfers.Break(reason);
}

void ProcessGroupNeuron::startCoalescing() {
  TORCH_CHECK(!coalescing_, "startCoalescing within startCoalescing");
  coalescing_.emplace();
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::endCoalescing() {
  TORCH_CHECK(coalescing_, "endCoalescing without startCoalescing");
  std::vector<WorkPtr> works = std::move(*coalescing_);
  coalescing_.reset();
  return Together(std::move(works));
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::Together(std::vector<WorkPtr> works) const {
  return c10::make_intrusive<CoalescedWork>(rank_, sequence_, std::move(works));
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::Issued(WorkPtr work) {
  if (coalescing_) coalescing_->push_back(work);
  return work;
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::barrier(const c10d::BarrierOptions& options) {
  Call call(*this, {c10d::OpType::BARRIER, "barrier", options.asyncOp, options.timeout},
            runtime::CurrentDevice());
  call.Submit([](const Round& round) { Barrier(round); });
  return call.Finish({}, true);
}

void ProcessGroupNeuron::monitoredBarrier(const c10d::BarrierOptions& options,
                                          bool /*wait_all_ranks*/) {
  Call call(*this, {c10d::OpType::BARRIER, "monitored_barrier", false, options.timeout},
            runtime::CurrentDevice());
  call.Submit([](const Round& round) { Barrier(round); });
  call.Finish({}, true)->wait();
}

void ProcessGroupNeuron::abort() { shared_->Break("it was aborted"); }

}  // namespace neuron::distributed
