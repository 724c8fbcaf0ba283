// Operations that an engine of the software NeuronCore runs instead of a generated kernel.
#pragma once

#include <vector>

#include "compiler/place.h"
#include "ir/graph.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

bool IsLibraryOp(ir::OpCode code);

// The values of the graph that one call gives together, `op` among them, in the order in which the
// call wants their places: an attention and its log-sum-exp, the gradients of one attention.
std::vector<const ir::Op*> ComputedTogether(const ir::Graph& graph, const ir::Op& op);

// places: the operation's tensor operands in order, then those of the results.
host::LibraryStep MakeLibraryStep(const ir::Op& op, const std::vector<Place>& places,
                                  const std::vector<const ir::Op*>& results);

// Rough time on one core, from the number of operations.
int64_t EstimateLibraryNanoseconds(const ir::Op& op);

}  // namespace neuron::compiler
