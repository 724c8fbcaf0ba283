// torch_neuronx._C.compiler: the host compiler for tests and tools.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindCompiler(pybind11::module_& m);

}  // namespace neuron
