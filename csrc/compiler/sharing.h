// Which intermediate values of a graph are worth writing to memory: those that several kernels need
// and that cost more to compute again than to read.
#pragma once

#include <unordered_set>

#include "ir/graph.h"

namespace neuron::compiler {

// True for operations that a generated kernel can compute among others (everything but library
// calls and what is assembled from parts).
bool IsFusible(ir::OpCode code);

// Element by element: each element of the result needs exactly that element of each operand.
bool IsElementwise(ir::OpCode code);

// written: values that are written in any case; not among the result.
std::unordered_set<const ir::Op*> FindShared(const ir::Graph& graph,
                                             const std::unordered_set<const ir::Op*>& written);

}  // namespace neuron::compiler
