#include "distributed/outcome.h"

#include <c10/util/Exception.h>

#include "support/interrupt.h"

namespace neuron::distributed {

void Outcome::Finish(std::exception_ptr error, int source) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  error_ = std::move(error);
  source_ = source;
  changed_.notify_all();
}

bool Outcome::Done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool Outcome::Wait(std::optional<std::chrono::milliseconds> timeout) const {
  std::unique_lock lock(mutex_);
  std::optional<std::chrono::steady_clock::time_point> deadline;
  if (timeout) deadline = std::chrono::steady_clock::now() + *timeout;
  return interrupt::Wait(changed_, lock, [this] { return done_; }, deadline);
}

std::exception_ptr Outcome::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

int Outcome::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

void Outcome::Check() const {
  if (const std::exception_ptr failure = error()) std::rethrow_exception(failure);
}

std::exception_ptr BackendError(const std::string& message) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, message));
}

}  // namespace neuron::distributed
