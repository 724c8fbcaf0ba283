// Cuts a graph into steps (kernels and library calls), places every value in memory, and binds
// code.
#pragma once

#include <memory>

#include "ir/graph.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

// Throws kUnsupported naming the operation that has no step.
std::shared_ptr<const host::HostExecutable> Plan(const ir::Graph& graph);

}  // namespace neuron::compiler
