// neuron::Error -> the exception that a PyTorch user expects.
#pragma once

#include <c10/util/Exception.h>

#include "support/error.h"

namespace neuron::aten {

// Throws the c10 exception of the error's kind.
[[noreturn]] void Rethrow(const Error& error);

// Calls f and translates what it throws.
template <typename F>
decltype(auto) Guarded(F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    Rethrow(error);
  }
}

}  // namespace neuron::aten
