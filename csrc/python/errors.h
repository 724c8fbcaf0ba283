// neuron::Error -> Python exceptions, for bindings without torch.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

// kInvalidArgument: ValueError; kOutOfRange: IndexError; kUnsupported: NotImplementedError; others:
// RuntimeError.
void RegisterErrors(pybind11::module_& m);

}  // namespace neuron
