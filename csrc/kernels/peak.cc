#include "kernels/peak.h"

#include <chrono>

#include "kernels/peak_kernels.h"
#include "kernels/thread_pool.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kRounds = 1 << 18;  // of one measurement: some hundred microseconds

PeakKernel FindKernel(DType dtype, [[maybe_unused]] Isa isa) {
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16)
    NEURON_THROW(kUnsupported, "peak: no kernel for ", Name(dtype));
#if defined(__x86_64__)
  if (isa == Isa::kAvx512Bf16 && dtype == DType::kBF16) return avx512_bf16::GetPeakKernel();
  if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) return avx512::GetPeakKernel();
  if (isa == Isa::kAvx2) return avx2::GetPeakKernel();
#endif
  return portable::GetPeakKernel();
}

}  // namespace

double MeasurePeak(DType dtype, double seconds, Isa isa) {
  using Clock = std::chrono::steady_clock;
  const PeakKernel kernel = FindKernel(dtype, isa);
  ThreadPool& pool = ThreadPool::Get();
  const double operations = static_cast<double>(kernel(1)) * static_cast<double>(kRounds);
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  double best = 0;
  do {
    const auto start = Clock::now();
    // Several pieces each, so that a thread that was held up has the others help out.
    const int pieces = 4 * pool.size();
    pool.ParallelFor(pieces, [&](int64_t) { kernel(kRounds); });
    const std::chrono::duration<double> elapsed = Clock::now() - start;
    const double rate = operations * pieces / elapsed.count();
    if (rate > best) best = rate;
  } while (Clock::now() < until);
  return best;
}

}  // namespace neuron::kernels
