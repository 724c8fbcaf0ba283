#include "kernels/cpu.h"

#include "support/env.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr Isa kAll[] = {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2, Isa::kPortable};

Isa Choose() {
  const std::string& wanted = env::GetString(env::Id::kStringHostIsa);
  for (Isa isa : kAll) {
    if (wanted.empty() ? CpuHas(isa) : Name(isa) == wanted) {
      if (!CpuHas(isa)) {
        NEURON_THROW(kInvalidArgument, "TORCH_NEURONX_HOST_ISA='", wanted, "': this CPU does not have it");
      }
      return isa;
    }
  }
  NEURON_THROW(kInvalidArgument, "TORCH_NEURONX_HOST_ISA='", wanted,
               "': expected portable, avx2, avx512 or avx512_bf16");
}

}  // namespace

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return "portable";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
  }
  return "";
}

bool CpuHas(Isa isa) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512cd");
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvx512:
      return avx512;
    case Isa::kAvx512Bf16:
      return avx512 && __builtin_cpu_supports("avx512bf16");
  }
#endif
  return isa == Isa::kPortable;
}

Isa ActiveIsa() {
  static const Isa isa = Choose();
  return isa;
}

}  // namespace neuron::kernels
