#include "kernels/cpu.h"

#include "support/env.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr Isa kBestFirst[] = {Isa::kAvx512Bf16, Isa::kAvx512, Isa::kAvx2, Isa::kPortable};

Isa Best() {
  for (Isa isa : kBestFirst) {
    if (CpuHas(isa)) return isa;
  }
  return Isa::kPortable;
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
  const auto avx2 = [] {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
  };
  const auto avx512 = [&] {
    return avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd");
  };
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return avx2();
    case Isa::kAvx512:
      return avx512();
    case Isa::kAvx512Bf16:
      return avx512() && __builtin_cpu_supports("avx512bf16");
  }
#endif
  return isa == Isa::kPortable;
}

Isa ParseIsa(std::string_view name) {
  for (Isa isa : kBestFirst) {
    if (Name(isa) != name) continue;
    if (!CpuHas(isa)) {
      NEURON_THROW(kInvalidArgument, "TORCH_NEURONX_HOST_ISA='", name,
                   "': this CPU lacks it, its best is '", Name(Best()), "'");
    }
    return isa;
  }
  NEURON_THROW(kInvalidArgument, "TORCH_NEURONX_HOST_ISA='", name,
               "': expected portable, avx2, avx512 or avx512_bf16");
}

Isa ActiveIsa() {
  static const Isa isa = [] {
    const std::string& wanted = env::GetString(env::Id::kStringHostIsa);
    return wanted.empty() ? Best() : ParseIsa(wanted);
  }();
  return isa;
}

}  // namespace neuron::kernels
