// Ops without a lowering run on the CPU: visibly.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace neuron::aten {

// What every fallback does first: counts it and warns once per op with the call site; raises
// NotImplementedError instead when NEURON_FALLBACK_ENABLED=0. name: "aten::add.Tensor"; bytes:
// moved between device and host.
void NoteFallback(const std::string& name, int64_t bytes);

// Notes the fallback, then runs the op on copies of its arguments in host memory.
void CpuFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace neuron::aten
