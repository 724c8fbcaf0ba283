// Ops without a lowering run on the CPU: visibly.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace neuron::aten {

// Runs the op on copies of its arguments in host memory. Warns once per op with the call site,
// counts calls and bytes; raises instead when NEURON_FALLBACK_ENABLED=0.
void CpuFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace neuron::aten
