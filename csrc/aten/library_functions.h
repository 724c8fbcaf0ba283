// Library functions that libtorch's CPU kernels provide to the software NeuronCores.
#pragma once

namespace neuron::aten {

// Registers "convolution".
void RegisterLibtorchFunctions();

}  // namespace neuron::aten
