// torch_neuronx._C.ir: the text form of graphs, for tests and tools.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindIr(pybind11::module_& m);

}  // namespace neuron
