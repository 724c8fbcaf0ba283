// A step of a plan with what is known of it until its code is bound.
#pragma once

#include <optional>
#include <set>

#include "compiler/kernel_builder.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

// Launch operands that a step names.
struct Access {
  std::set<int> reads, writes;
  std::set<int> elementwise;  // operands read only where the same item writes them
};

struct PlannedStep {
  host::Step step;
  Access access;
  std::optional<loop::Kernel> kernel;    // of a kernel step, or of a library step's epilogue
  std::optional<KernelBuilder> builder;  // of a kernel that could be an epilogue
  int64_t estimated_ns = 0;
};

Access AccessOf(const BuiltKernel& built);

// The kernel and its launch's values; its code is bound later.
host::KernelStep MakeKernelStep(BuiltKernel built);

}  // namespace neuron::compiler
