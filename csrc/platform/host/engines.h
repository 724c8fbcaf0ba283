// Registers csrc/kernels as library functions: "gemm", "attention", "attention_lse".
#pragma once

namespace neuron::host {

void RegisterEngines();

}  // namespace neuron::host
