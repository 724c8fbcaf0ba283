// Long waits of the main thread let signals be handled: Ctrl-C ends what waits for other processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>

namespace neuron::interrupt {

// Runs the handlers of pending signals in the main thread; what they threw, or null.
using Check = std::function<std::exception_ptr()>;
void SetCheck(Check check);

// `abort` is called when a handler threw, by the thread that waits: it ends waits for other
// processes, so that the wait for them ends too, and must not wait itself. Returns an id for
// RemoveAbort.
int AddAbort(std::function<void()> abort);
void RemoveAbort(int id);

// For loops that wait in short slices. In the main thread Poll handles signals; what a handler
// threw is thrown by Throw, at the end of the wait: what is waited for may use the caller's memory.
class Waiter {
 public:
  using Clock = std::chrono::steady_clock;
  static bool InMainThread();
  // To be called without locks.
  void Poll();
  void Throw() const {
    if (thrown_ != nullptr) std::rethrow_exception(thrown_);
  }

 private:
  std::exception_ptr thrown_;
};

// As condition.wait(lock, done), or wait_until if there is a deadline: returns done(). Throws what
// a signal's handler threw, at the end and with the lock held.
template <typename Done>
bool Wait(std::condition_variable& condition, std::unique_lock<std::mutex>& lock, const Done& done,
          std::optional<Waiter::Clock::time_point> deadline = std::nullopt) {
  constexpr auto kSlice = std::chrono::milliseconds(100);
  const bool polls = Waiter::InMainThread();
  Waiter waiter;
  if (!polls && !deadline) condition.wait(lock, done);
  while (!done() && (!deadline || Waiter::Clock::now() < *deadline)) {
    const auto slice = Waiter::Clock::now() + kSlice;
    if (condition.wait_until(lock, deadline ? std::min(slice, *deadline) : slice, done) || !polls)
      continue;
    lock.unlock();
    waiter.Poll();
    lock.lock();
  }
  waiter.Throw();
  return done();
}

}  // namespace neuron::interrupt
