// How much one step of an executable moves and computes, for reports and rooflines.
#pragma once

#include "compiler/kernel_builder.h"
#include "ir/graph.h"
#include "platform/executable.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

// Bytes: each distinct way of reading or writing an operand once, however many passes go over it
// (a pass finds the row of the one before in the cache). FLOPs: one per arithmetic operation and
// reduced element in floating point, two for a fused multiply-add; conversions, comparisons and
// selections none. Transcendental functions are counted apart. Both as often as passes evaluate
// them.
platform::StepWork KernelWork(const BuiltKernel& built);

// Adds to the work of a matrix product that of the kernel that runs on the parts of its result, the
// kernel's operand `result`, while they are in the cache. `kept`: the product itself is written
// too.
void AddEpilogueWork(platform::StepWork& product, const BuiltKernel& epilogue, int result,
                     bool kept);

// `results`: how many of the step's tensors, at the end, are written. A multiply-add of a matmul, a
// convolution or an attention is two FLOPs; a causal attention does half of them.
platform::StepWork LibraryWork(const host::LibraryStep& step, size_t results);

}  // namespace neuron::compiler
