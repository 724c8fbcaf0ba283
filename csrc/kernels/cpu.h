// Which instruction set the kernels use.
#pragma once

#include <string_view>

namespace neuron::kernels {

enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Bf16 };

std::string_view Name(Isa isa);
// The best that this CPU has, or the one that TORCH_NEURONX_HOST_ISA names; decided once. Throws
// kInvalidArgument if the CPU lacks it or no such name exists.
Isa ActiveIsa();
bool CpuHas(Isa isa);
// The instruction set of that name. Throws kInvalidArgument as ActiveIsa does.
Isa ParseIsa(std::string_view name);

}  // namespace neuron::kernels
