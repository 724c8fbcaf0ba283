// Events of the platform `host`: counted points in queues' orders.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "platform/driver.h"

namespace neuron::host {

// What a queue failed with. Queues that wait for a failed one's events share it, and one
// synchronising call raises it.
struct Failure {
  explicit Failure(std::exception_ptr failure) : error(std::move(failure)) {}
  const std::exception_ptr error;
  std::atomic<bool> raised{false};
};

class HostEvent final : public platform::Event {
 public:
  explicit HostEvent(bool timing) : state_(std::make_shared<State>()), timing_(timing) {}

  // A recorded point. Shared with the queues that will reach it or wait for it, so that an event
  // may die first.
  struct State {
    mutable std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0;  // points recorded so far
    uint64_t reached = 0;   // the last of them that a queue has passed
    int64_t time = 0;
    std::shared_ptr<Failure> failure;  // kept by the queue when it passed the last point
    void Reach(uint64_t point, bool timing, std::shared_ptr<Failure> kept);
    // Returns what the queue had failed with. Throws what the handler of a signal threw meanwhile,
    // once the point is reached.
    std::shared_ptr<Failure> WaitFor(uint64_t point);
  };

  bool Query() const override;
  void Wait() override;
  int64_t CompletionTimeNanoseconds() const override;

  // A new point; the caller makes the queue Reach it.
  uint64_t NextPoint();
  uint64_t LastPoint() const;
  const std::shared_ptr<State>& state() const { return state_; }
  bool timing() const { return timing_; }

 private:
  std::shared_ptr<State> state_;
  const bool timing_;
};

}  // namespace neuron::host
