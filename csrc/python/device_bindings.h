// torch_neuronx._C.device: what the Python package torch_neuronx.neuron stands on.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindDevice(pybind11::module_& m);

}  // namespace neuron
