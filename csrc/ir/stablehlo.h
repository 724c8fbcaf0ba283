// Graphs as StableHLO, in the MLIR text that XLA's parser accepts (dialects func and stablehlo
// only).
//
// What StableHLO has no operation for is written by a definition in terms of what it has
// (stablehlo_decompose.h). Large definitions are functions of their own behind a
// stablehlo.composite, so that a compiler with an engine for one can tell what it is: attention,
// random bits, error functions, and the ATen ops that graphs mark as regions (gelu, norms).
//
// Where the two differ: an index out of range is clamped or dropped by StableHLO and fails a launch
// here; strides are no part of a StableHLO type, so the tensors of the module are the logical ones.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace neuron::ir {

// A module whose public function @main takes the graph's parameters, then its run-time scalars, and
// returns its outputs; an output that shares a parameter's memory is marked with
// tf.aliasing_output. `argument_names`: of the parameters, in their order, kept as locations; may
// be empty. The graph must be one that Verify accepts. Throws kUnsupported naming the operation and
// the dtype that cannot be expressed.
std::string PrintStableHlo(const Graph& graph, const std::vector<std::string>& argument_names = {});

}  // namespace neuron::ir
