// Large reductions to few results, cut into parts that threads can share.
#pragma once

#include "ir/graph.h"

namespace neuron::compiler {

// Whether SplitReductions would change anything.
bool HasSplittableReduction(const ir::Graph& graph);

// Sums, products, extrema and logical reductions of many elements to a few results become
// reductions of parts, then of the parts' results. How they are cut depends on shapes alone, so
// results have the same bits whatever the number of threads. Of argmax and argmin there are no
// parts.
ir::Graph SplitReductions(const ir::Graph& graph);

}  // namespace neuron::compiler
