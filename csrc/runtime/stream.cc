#include "runtime/stream.h"

#include <array>
#include <vector>

#include "runtime/device.h"
#include "runtime/stream_registry.h"
#include "support/error.h"

namespace neuron::runtime {
namespace {

constexpr int kMaxDevices = 128;
constexpr int kPoolStreams = 32;                // per priority class
constexpr int kStreams = 1 + 2 * kPoolStreams;  // default, normal priority, high priority

struct DeviceStreams {
  std::array<std::atomic<Stream*>, kStreams> streams{};
  std::array<std::atomic<uint32_t>, 2> next{};  // round robin per priority class
  std::mutex mutex;
};

// Never destroyed: queues may be in use by other threads while the process exits.
std::array<DeviceStreams, kMaxDevices>& All() {
  static auto* const all = new std::array<DeviceStreams, kMaxDevices>();
  return *all;
}

DeviceStreams& Of(int device) {
  if (device < 0 || device >= DeviceCount()) {
    NEURON_THROW(kOutOfRange, "device index ", device,
                 " is out of range: this process has NeuronCores 0 to ", DeviceCount() - 1);
  }
  return All()[static_cast<size_t>(device)];
}

Stream& GetOrCreate(int device, int64_t id) {
  DeviceStreams& streams = All()[static_cast<size_t>(device)];
  std::atomic<Stream*>& slot = streams.streams[static_cast<size_t>(id)];
  Stream* stream = slot.load(std::memory_order_acquire);
  if (stream != nullptr) return *stream;
  std::lock_guard lock(streams.mutex);
  stream = slot.load(std::memory_order_relaxed);
  if (stream == nullptr) {
    auto created = std::make_unique<Stream>(device, id, id > kPoolStreams ? -1 : 0);
    stream = created.release();
    slot.store(stream, std::memory_order_release);
  }
  return *stream;
}

thread_local std::array<Stream*, kMaxDevices> current_streams{};

}  // namespace

platform::Queue& Stream::queue() {
  platform::Queue* queue = queue_.load(std::memory_order_acquire);
  if (queue != nullptr) return *queue;
  std::lock_guard lock(mutex_);
  if (owner_ == nullptr) {
    owner_ = GetDevice(device_).CreateQueue(priority_);
    queue_.store(owner_.get(), std::memory_order_release);
  }
  return *owner_;
}

Stream& DefaultStream(int device) {
  Of(device);
  return GetOrCreate(device, 0);
}

Stream& GetStream(int device, int64_t id) {
  DeviceStreams& streams = Of(device);
  Stream* stream =
      id >= 0 && id < kStreams ? streams.streams[static_cast<size_t>(id)].load() : nullptr;
  if (id == 0) return DefaultStream(device);
  if (stream == nullptr)
    NEURON_THROW(kOutOfRange, "neuron:", device, " has no stream with id ", id);
  return *stream;
}

Stream& NextPoolStream(int device, int priority) {
  const int high = priority < 0 ? 1 : 0;
  const uint32_t turn = Of(device).next[static_cast<size_t>(high)].fetch_add(1) % kPoolStreams;
  return GetOrCreate(device, 1 + high * kPoolStreams + static_cast<int64_t>(turn));
}

Stream& CurrentStream(int device) {
  if (device >= 0 && device < kMaxDevices) {
    if (Stream* stream = current_streams[static_cast<size_t>(device)]) return *stream;
  }
  return DefaultStream(device);
}

Stream& SetCurrentStream(Stream& stream) {
  Stream& previous = CurrentStream(stream.device());
  current_streams[static_cast<size_t>(stream.device())] = &stream;
  return previous;
}

std::vector<Stream*> StartedStreams(int device) {
  std::vector<Stream*> out;
  for (auto& slot : Of(device).streams) {
    Stream* stream = slot.load(std::memory_order_acquire);
    if (stream != nullptr && stream->started()) out.push_back(stream);
  }
  return out;
}

}  // namespace neuron::runtime
