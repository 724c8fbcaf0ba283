// torch_neuronx._C.distributed: the c10d backend.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindDistributed(pybind11::module_& m);

}  // namespace neuron
