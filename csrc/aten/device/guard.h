#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace neuron::aten {

// Devices, streams and events as c10 wants them; lives as long as the process.
const c10::impl::DeviceGuardImplInterface* Guard();

}  // namespace neuron::aten
