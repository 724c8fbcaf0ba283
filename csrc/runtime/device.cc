#include "runtime/device.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

#include "runtime/stream_registry.h"
#include "support/error.h"

namespace neuron::runtime {
namespace {

std::atomic<bool> initialized{false};
std::atomic<bool> bad_fork{false};
std::atomic<int> default_device{0};
thread_local int current_device = -1;

void CheckIndex(int index) {
  const int count = DeviceCount();
  if (index < 0 || index >= count) {
    NEURON_THROW(kOutOfRange, "device index ", index,
                 " is out of range: this process has NeuronCores 0 to ", count - 1);
  }
}

[[noreturn]] void ThrowBadFork() {
  NEURON_THROW(
      kInternal,
      "Cannot use neuron in a forked subprocess whose parent has used it. To use neuron with "
      "multiprocessing, you must use the 'spawn' start method");
}

}  // namespace

int DeviceCount() { return platform::GetDriver().device_count(); }

int CurrentDevice() {
  return current_device >= 0 ? current_device : default_device.load(std::memory_order_relaxed);
}

void SetDevice(int index) {
  CheckIndex(index);
  current_device = index;
}

void SetDefaultDevice(int index) {
  CheckIndex(index);
  default_device.store(index, std::memory_order_relaxed);
}

bool IsInitialized() {
  return initialized.load(std::memory_order_acquire) && !bad_fork.load(std::memory_order_relaxed);
}

bool IsInBadFork() { return bad_fork.load(std::memory_order_relaxed); }

void Initialize() {
  if (initialized.load(std::memory_order_acquire)) {
    if (bad_fork.load(std::memory_order_relaxed)) ThrowBadFork();
    return;
  }
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (initialized.load(std::memory_order_relaxed)) return;
  platform::GetDriver();
  pthread_atfork(nullptr, nullptr, [] { bad_fork.store(true); });
  initialized.store(true, std::memory_order_release);
}

platform::Device& GetDevice(int index) {
  Initialize();
  return platform::GetDriver().device(index);
}

void SynchronizeDevice(int index) {
  CheckIndex(index);
  if (!initialized.load(std::memory_order_acquire)) return;
  Initialize();
  std::exception_ptr first;
  for (Stream* stream : StartedStreams(index)) {
    try {
      stream->queue().Synchronize();
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace neuron::runtime
