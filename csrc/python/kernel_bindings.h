// torch_neuronx._C.kernels: the engines of the software NeuronCore for tests and benchmarks.
#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

void BindKernels(pybind11::module_& m);

}  // namespace neuron
