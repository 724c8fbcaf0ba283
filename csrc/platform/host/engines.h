// Library functions of the software NeuronCores.
#pragma once

namespace neuron::host {

// csrc/kernels: "gemm", "attention", "attention_grad".
void RegisterEngines();
// What moves data by its values: "nonzero".
void RegisterDataEngines();
// Sorting and running sums: "argsort", "cumulative_add", ...
void RegisterOrderEngines();

}  // namespace neuron::host
