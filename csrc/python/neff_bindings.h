// torch_neuronx._C.neff: the on-disk cache of executables, for tests and tools.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindNeff(pybind11::module_& m);

}  // namespace neuron
