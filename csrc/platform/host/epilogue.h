// Running an epilogue's kernel on the parts of a result.
#pragma once

#include "kernels/gemm.h"
#include "platform/host/executable.h"

namespace neuron::host {

// What all parts have in common.
struct EpilogueRun {
  const Epilogue& epilogue;
  KernelFn fn;
  void* const* operands;  // those of the whole result
  const uint64_t* scalars;
  const KernelContext& context;
};

void RunEpilogue(const EpilogueRun& run, const kernels::GemmBlock& block);

}  // namespace neuron::host
