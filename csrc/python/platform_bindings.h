// torch_neuronx._C.platform: the seam itself, for the conformance suite.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindPlatform(pybind11::module_& m);

}  // namespace neuron
