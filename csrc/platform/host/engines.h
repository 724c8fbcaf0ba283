// Library functions of the software NeuronCores.
#pragma once

namespace neuron::host {

// csrc/kernels: "gemm", "attention".
void RegisterEngines();
// What moves data by its values: "nonzero".
void RegisterDataEngines();

}  // namespace neuron::host
