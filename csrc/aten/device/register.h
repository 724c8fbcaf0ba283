// Makes "neuron" a device of PyTorch.
#pragma once

namespace neuron::aten {

// Registers the backend's name, hooks, guard and allocator. Called once, when the extension is
// loaded; starts nothing and allocates no device memory.
void RegisterDevice();

}  // namespace neuron::aten
