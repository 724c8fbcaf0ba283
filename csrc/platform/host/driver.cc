#include "platform/host/driver.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "kernels/cpu.h"
#include "kernels/thread_pool.h"
#include "platform/host/event.h"
#include "platform/host/memory.h"
#include "platform/host/queue.h"
#include "support/env.h"
#include "support/error.h"

namespace neuron::host {
namespace {

constexpr int kMaxCores = 128;  // c10::DeviceIndex is one signed byte

platform::Compiler* (*compiler_factory)() = nullptr;

class HostDevice final : public platform::Device {
 public:
  HostDevice(int index, int64_t hbm) : index_(index), hbm_(hbm) {}
  int index() const override { return index_; }
  platform::DeviceProperties properties() const override {
    return {"NeuronCore (host)", std::string(kernels::Name(kernels::ActiveIsa())),
            hbm_.info().total, kernels::ThreadPool::Get().size()};
  }
  platform::MemoryInfo memory() const override { return hbm_.info(); }
  platform::DeviceAddress Allocate(size_t bytes) override { return hbm_.Allocate(bytes); }
  void Free(platform::DeviceAddress address) override { hbm_.Free(address); }
  void* HostView(platform::DeviceAddress address) override {
    return reinterpret_cast<void*>(address);
  }
  std::unique_ptr<platform::Queue> CreateQueue(int priority) override {
    (void)priority;  // the cores' threads are the operating system's: it has no priorities to give
    return std::make_unique<HostQueue>();
  }
  std::unique_ptr<platform::Event> CreateEvent(bool timing) override {
    return std::make_unique<HostEvent>(timing);
  }

 private:
  const int index_;
  Hbm hbm_;
};

class HostDriver final : public platform::Driver {
 public:
  HostDriver() {
    const int64_t hbm = env::GetInt(env::Id::kIntHostHbmBytes);
    if (hbm <= 0)
      NEURON_THROW(kInvalidArgument, "TORCH_NEURONX_HOST_HBM_BYTES=", hbm,
                   ": expected a positive number of bytes");
    const auto cores = VisibleCores();
    for (size_t i = 0; i < cores.size(); ++i)
      devices_.push_back(std::make_unique<HostDevice>(static_cast<int>(i), hbm));
  }
  std::string name() const override { return "host"; }
  int device_count() const override { return static_cast<int>(devices_.size()); }
  platform::Device& device(int index) override {
    if (index < 0 || index >= device_count()) {
      NEURON_THROW(kOutOfRange, "neuron:", index, " does not exist: this process has ",
                   device_count(), " NeuronCores");
    }
    return *devices_[static_cast<size_t>(index)];
  }
  platform::Compiler& compiler() override {
    NEURON_CHECK(compiler_factory != nullptr, "platform host has no compiler");
    return *compiler_factory();
  }

 private:
  std::vector<std::unique_ptr<HostDevice>> devices_;
};

[[noreturn]] void BadCores(const std::string& text) {
  NEURON_THROW(kInvalidArgument, "NEURON_RT_VISIBLE_CORES='", text,
               "': expected core numbers from 0 to 127 and ranges, such as 0,2,4-7");
}

int ParseCore(const std::string& text, std::string_view part) {
  int core = -1;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), core);
  if (error != std::errc() || end != part.data() + part.size() || core < 0 || core >= kMaxCores)
    BadCores(text);
  return core;
}

}  // namespace

std::vector<int> VisibleCores() {
  std::vector<int> cores;
  const std::string& text = env::GetString(env::Id::kStringRtVisibleCores);
  if (text.empty()) {
    const int64_t count = env::GetInt(env::Id::kIntRtNumCores);
    if (count < 1 || count > kMaxCores) {
      NEURON_THROW(kInvalidArgument, "NEURON_RT_NUM_CORES=", count,
                   ": expected a number from 1 to ", kMaxCores);
    }
    for (int i = 0; i < count; ++i) cores.push_back(i);
    return cores;
  }
  std::string_view rest = text;
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view part = rest.substr(0, comma);
    const size_t dash = part.find('-');
    const int first = ParseCore(text, part.substr(0, std::min(dash, part.size())));
    const int last =
        dash == std::string_view::npos ? first : ParseCore(text, part.substr(dash + 1));
    if (last < first) BadCores(text);
    for (int core = first; core <= last; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) BadCores(text);
      cores.push_back(core);
    }
    if (comma == rest.size()) return cores;
    rest.remove_prefix(comma + 1);
  }
}

void RegisterHostDriver(platform::Compiler* (*compiler)()) {
  compiler_factory = compiler;
  platform::RegisterDriver(
      "host", []() -> std::unique_ptr<platform::Driver> { return std::make_unique<HostDriver>(); });
}

}  // namespace neuron::host
