// Library functions that libtorch's CPU kernels provide to the software NeuronCores.
#pragma once

namespace neuron::aten {

// Registers "convolution", for the dtypes that csrc/kernels does not convolve.
void RegisterLibtorchFunctions();

}  // namespace neuron::aten
