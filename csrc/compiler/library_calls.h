// Operations that an engine of the software NeuronCore runs instead of a generated kernel.
#pragma once

#include <vector>

#include "compiler/place.h"
#include "ir/graph.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

bool IsLibraryOp(ir::OpCode code);

// places: the operation's tensor operands in order, then its destination.
host::LibraryStep MakeLibraryStep(const ir::Op& op, const std::vector<Place>& places);

// Rough time on one core, from the number of operations.
int64_t EstimateLibraryNanoseconds(const ir::Op& op);

}  // namespace neuron::compiler
