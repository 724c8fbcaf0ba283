#include "aten/device/errors.h"

namespace neuron::aten {

void Rethrow(const Error& error) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  const std::string message = error.what();
  switch (error.code()) {
    case ErrorCode::kInvalidArgument:
      throw c10::ValueError(here, message);
    case ErrorCode::kOutOfRange:
      throw c10::IndexError(here, message);
    case ErrorCode::kUnsupported:
      throw c10::NotImplementedError(here, message);
    case ErrorCode::kOutOfMemory:
      throw c10::OutOfMemoryError(here, message);
    case ErrorCode::kInternal:
    case ErrorCode::kFailedExecution:
      break;
  }
  throw c10::Error(here, message);
}

}  // namespace neuron::aten
