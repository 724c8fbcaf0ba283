#pragma once

#include <ATen/detail/PrivateUse1HooksInterface.h>

namespace neuron::aten {

// PyTorch's hooks for the device; lives as long as the process.
at::PrivateUse1HooksInterface* Hooks();

}  // namespace neuron::aten
