// torch_neuronx._C.graph: whole graphs for torch.compile.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindGraph(pybind11::module_& m);

}  // namespace neuron
