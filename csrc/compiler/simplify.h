// Canonical form of a graph: constants folded, views merged, equal operations computed once, dead
// ones dropped.
#pragma once

#include "ir/graph.h"

namespace neuron::compiler {

// The graph with the same parameters, scalars and outputs, and the same bits in every result.
ir::Graph Simplify(const ir::Graph& graph);

}  // namespace neuron::compiler
