// The platform `host`: software NeuronCores on this machine's CPU.
#pragma once

#include <vector>

#include "platform/driver.h"

namespace neuron::host {

// Registers the driver. `compiler` is asked for at the first use of the compiler; it lives as long
// as the process.
void RegisterHostDriver(platform::Compiler* (*compiler)());

// Numbers of the cores that the environment gives this process. Throws kInvalidArgument naming the
// variable.
std::vector<int> VisibleCores();

}  // namespace neuron::host
