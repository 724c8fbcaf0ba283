// Matrix products and the elementwise work on their results: the latter runs on each part of a
// result as soon as it is finished, while it is in the cache.
#pragma once

#include <unordered_set>
#include <vector>

#include "compiler/planned_step.h"
#include "ir/graph.h"

namespace neuron::compiler {

// For each matrix product, the last value that follows from its result element by element and
// through which everything goes that is computed from the result: what is best written instead of
// it. Not the product itself.
std::unordered_set<const ir::Op*> FindEpilogues(const ir::Graph& graph);

// Moves kernels that can be epilogues into the products before them. `scratch`: the launch operand
// of temporaries; a product's result there that nothing else reads is not written at all.
void FuseEpilogues(std::vector<PlannedStep>& steps, int scratch);

}  // namespace neuron::compiler
