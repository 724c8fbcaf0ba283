// Slots of the table of scalar helper functions (platform/host/helpers.h) by IR operation.
#pragma once

#include "ir/graph.h"

namespace neuron::codegen {

// Index into KernelContext::helpers, or -1 if there is no helper for the operation.
int HelperSlot(ir::OpCode op, bool f64);

}  // namespace neuron::codegen
