// What became of a collective or a transfer; shared with the thread that runs it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <string>

namespace neuron::distributed {

class Outcome {
 public:
  // Only the first call counts. source: the rank that a message came from, -1 if there is none.
  void Finish(std::exception_ptr error = nullptr, int source = -1);
  bool Done() const;
  // False if `timeout` ends first; without one it waits for ever. Throws what the handler of a
  // signal threw meanwhile, once it is done.
  bool Wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) const;
  // Null while it is not done, and if it went well.
  std::exception_ptr error() const;
  int source() const;
  // Throws what it failed with.
  void Check() const;

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  std::exception_ptr error_;
  int source_ = -1;
};

// torch.distributed.DistBackendError.
std::exception_ptr BackendError(const std::string& message);

}  // namespace neuron::distributed
