// Errors of the device. Every layer throws neuron::Error; csrc/aten and csrc/python turn it into
// the exception that a PyTorch user expects (RuntimeError, IndexError, torch.OutOfMemoryError...).
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace neuron {

enum class ErrorCode {
  kInternal,         // a broken promise of this library: RuntimeError
  kInvalidArgument,  // the caller's mistake: ValueError
  kOutOfRange,       // an index outside its dimension: IndexError
  kUnsupported,      // not implemented, says what to do instead: NotImplementedError
  kOutOfMemory,      // the core's HBM is exhausted: torch.OutOfMemoryError
  kFailedExecution,  // an executable failed: RuntimeError
};

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

template <typename... Args>
std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

}  // namespace neuron

// Throws neuron::Error(code) with the remaining arguments streamed into its message.
#define NEURON_THROW(code, ...) \
  throw ::neuron::Error(::neuron::ErrorCode::code, ::neuron::StrCat(__VA_ARGS__))

// An invariant of this library: its failure is a bug here, not in the caller.
#define NEURON_CHECK(condition, ...)                                   \
  do {                                                                 \
    if (!(condition)) [[unlikely]] {                                   \
      NEURON_THROW(kInternal, __FILE__, ":", __LINE__,                 \
                   ": check failed: " #condition ". ", ##__VA_ARGS__); \
    }                                                                  \
  } while (0)
