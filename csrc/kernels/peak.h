// What this machine's multiply-add units can do at most, for benchmarks to compare with.
#pragma once

#include "kernels/cpu.h"
#include "support/dtype.h"

namespace neuron::kernels {

// Floating-point operations per second (two per multiply-add) of all threads of the pool together,
// on registers alone, over about `seconds`. bf16 counts VDPBF16PS where the instruction set has it;
// without, bf16 and f16 are multiplied as f32. Throws kUnsupported for other dtypes.
double MeasurePeak(DType dtype, double seconds, Isa isa = ActiveIsa());

}  // namespace neuron::kernels
