// The seam between the device and what is under it. A platform provides one Driver (devices,
// memory, queues, events) and one Compiler (compiler.h). tests/platform is the suite that each must
// pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "platform/compiler.h"
#include "platform/executable.h"

namespace neuron::platform {

struct DeviceProperties {
  std::string name;             // "NeuronCore (host)"
  std::string instruction_set;  // "avx512_bf16"; empty if it has none to tell
  int64_t total_memory = 0;     // bytes of HBM
  int num_threads = 0;          // host threads that serve it; 0 if not applicable
  int num_cores = 1;            // physical cores that this one joins (LNC)
};

struct MemoryInfo {
  int64_t used = 0;   // bytes handed out by Device::Allocate
  int64_t total = 0;  // bytes of HBM
};

// A point in a queue's order. Created unrecorded (Query() is true, Wait() returns at once).
// Re-recording replaces the point. Thread-safe.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool Query() const = 0;
  // Blocks the calling thread. Never throws what the queue's work threw; in the main thread it may
  // throw what the handler of a signal threw, at its end.
  virtual void Wait() = 0;
  // Nanoseconds of a monotonic clock at which the queue reached the point; 0 before that, or if the
  // event was created without timing.
  virtual int64_t CompletionTimeNanoseconds() const = 0;
};

// Runs what it is given in order, asynchronously. Every call may come from any thread. The first
// failure is kept; Synchronize throws and clears it; later work runs on meanwhile. A queue that
// waits for an event of a failed one keeps the same failure; one Synchronize of them throws it.
class Queue {
 public:
  virtual ~Queue() = default;

  // operands and scalars are copied; their memory must stay valid in queue order. context may be
  // null.
  virtual void Launch(std::shared_ptr<const Executable> executable,
                      std::span<const DeviceAddress> operands, std::span<const uint64_t> scalars,
                      std::shared_ptr<const LaunchContext> context) = 0;

  // Copies of bytes. Host memory must stay valid until the copy was done: the caller waits, or
  // gives its owner, which is released then.
  virtual void CopyToDevice(DeviceAddress destination, const void* source, size_t bytes,
                            std::shared_ptr<const void> owner = nullptr) = 0;
  virtual void CopyFromDevice(void* destination, DeviceAddress source, size_t bytes) = 0;
  // Between two addresses of this queue's core, or of two cores of one driver; ranges do not
  // overlap.
  virtual void CopyOnDevice(DeviceAddress destination, DeviceAddress source, size_t bytes) = 0;
  virtual void Fill(DeviceAddress destination, uint8_t byte, size_t bytes) = 0;

  // Runs fn in queue order. An exception that it throws becomes the queue's failure.
  virtual void Enqueue(std::function<void()> fn) = 0;
  // The same for work of a few microseconds: if the queue is idle, the calling thread may do it.
  virtual void EnqueueShort(std::function<void()> fn) = 0;

  virtual void Record(Event& event) = 0;
  // Later work of this queue waits for the point that `event` holds now (nothing if unrecorded).
  virtual void WaitFor(Event& event) = 0;

  virtual bool Idle() const = 0;
  // Waits for all work given before the call; then throws the queue's kept failure, if any.
  virtual void Synchronize() = 0;
};

// One NeuronCore.
class Device {
 public:
  virtual ~Device() = default;
  virtual int index() const = 0;
  virtual DeviceProperties properties() const = 0;
  virtual MemoryInfo memory() const = 0;
  // `bytes` > 0 of HBM, aligned to 256, contents undefined, reserved lazily where the platform can.
  // Throws kOutOfMemory when the core's HBM does not hold it.
  virtual DeviceAddress Allocate(size_t bytes) = 0;
  virtual void Free(DeviceAddress address) = 0;
  // Where functions given to Queue::Enqueue may read and write the memory at `address`; null where
  // the host cannot reach it.
  virtual void* HostView(DeviceAddress address) = 0;
  // priority: smaller is sooner, 0 is normal.
  virtual std::unique_ptr<Queue> CreateQueue(int priority) = 0;
  virtual std::unique_ptr<Event> CreateEvent(bool timing) = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;
  virtual std::string name() const = 0;  // "host"
  // Cores this process may use. Cheap: starts nothing.
  virtual int device_count() const = 0;
  // Throws kOutOfRange outside [0, device_count()).
  virtual Device& device(int index) = 0;
  virtual Compiler& compiler() = 0;
};

// The registry of platforms. A factory is called at most once, at the first Get.
using DriverFactory = std::unique_ptr<Driver> (*)();
void RegisterDriver(const std::string& name, DriverFactory factory);
// The driver of this process (platform "host").
Driver& GetDriver();

}  // namespace neuron::platform
