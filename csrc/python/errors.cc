#include "python/errors.h"

#include "support/error.h"

namespace neuron {

void RegisterErrors(pybind11::module_& m) {
  (void)m;
  pybind11::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      switch (error.code()) {
        case ErrorCode::kInvalidArgument:
          return PyErr_SetString(PyExc_ValueError, error.what());
        case ErrorCode::kOutOfRange:
          return PyErr_SetString(PyExc_IndexError, error.what());
        case ErrorCode::kUnsupported:
          return PyErr_SetString(PyExc_NotImplementedError, error.what());
        case ErrorCode::kOutOfMemory: {
          // As torch raises it; torch is loaded before this extension.
          const auto type = pybind11::module_::import("torch").attr("OutOfMemoryError");
          return PyErr_SetString(type.ptr(), error.what());
        }
        case ErrorCode::kInternal:
        case ErrorCode::kFailedExecution:
          return PyErr_SetString(PyExc_RuntimeError, error.what());
      }
    }
  });
}

}  // namespace neuron
