// Library functions of the software NeuronCores.
#pragma once

#include "platform/host/library.h"

namespace neuron::host {

// csrc/kernels: "gemm", "attention", "attention_grad", "permute".
void RegisterEngines();
// Whether "permute" copies the one to the other (same dims, same dtype) faster than a generated
// kernel.
bool CanPermute(const TensorDesc& source, const TensorDesc& result);
// What moves data by its values: "nonzero".
void RegisterDataEngines();

}  // namespace neuron::host
