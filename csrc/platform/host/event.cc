#include "platform/host/event.h"

#include <chrono>

#include "support/interrupt.h"

namespace neuron::host {

void HostEvent::State::Reach(uint64_t point, bool timing, std::shared_ptr<Failure> kept) {
  std::lock_guard lock(mutex);
  if (point <= reached) return;
  reached = point;
  failure = std::move(kept);
  if (timing) {
    time = std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
               .count();
  }
  changed.notify_all();
}

std::shared_ptr<Failure> HostEvent::State::WaitFor(uint64_t point) {
  std::unique_lock lock(mutex);
  interrupt::Wait(changed, lock, [&] { return reached >= point; });
  return failure;
}

bool HostEvent::Query() const {
  std::lock_guard lock(state_->mutex);
  return state_->reached >= state_->recorded;
}

void HostEvent::Wait() { state_->WaitFor(LastPoint()); }

int64_t HostEvent::CompletionTimeNanoseconds() const {
  std::lock_guard lock(state_->mutex);
  return state_->reached >= state_->recorded ? state_->time : 0;
}

uint64_t HostEvent::NextPoint() {
  std::lock_guard lock(state_->mutex);
  return ++state_->recorded;
}

uint64_t HostEvent::LastPoint() const {
  std::lock_guard lock(state_->mutex);
  return state_->recorded;
}

}  // namespace neuron::host
