// Streams: named queues of a core. Stream 0 is the core's default stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "platform/driver.h"

namespace neuron::runtime {

class Stream {
 public:
  Stream(int device, int64_t id, int priority) : device_(device), id_(id), priority_(priority) {}
  int device() const { return device_; }
  int64_t id() const { return id_; }
  int priority() const { return priority_; }
  // The platform's queue, created on first call.
  platform::Queue& queue();
  bool started() const { return queue_.load(std::memory_order_acquire) != nullptr; }

 private:
  const int device_;
  const int64_t id_;
  const int priority_;
  std::mutex mutex_;
  std::unique_ptr<platform::Queue> owner_;
  std::atomic<platform::Queue*> queue_{nullptr};
};

// Streams live as long as the process. Ids are small: 0 is the default stream, pool streams follow.
Stream& DefaultStream(int device);
// Throws kOutOfRange for an id that no call returned.
Stream& GetStream(int device, int64_t id);
// The next of 32 pool streams per priority class (priority < 0: high), round robin.
Stream& NextPoolStream(int device, int priority);
// Per thread and device; the default stream unless set.
Stream& CurrentStream(int device);
// Returns the stream that was current.
Stream& SetCurrentStream(Stream& stream);

}  // namespace neuron::runtime
