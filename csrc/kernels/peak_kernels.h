// One per instruction set. Same rules as gemm_kernels.h.
#pragma once

#include <cstdint>

namespace neuron::kernels {

// Does `rounds` rounds of multiply-adds in registers; returns the operations of one round.
using PeakKernel = int64_t (*)(int64_t rounds);

namespace portable {
PeakKernel GetPeakKernel();
}
#if defined(__x86_64__)
namespace avx2 {
PeakKernel GetPeakKernel();
}
namespace avx512 {
PeakKernel GetPeakKernel();
}
namespace avx512_bf16 {
PeakKernel GetPeakKernel();
}
#endif

}  // namespace neuron::kernels
