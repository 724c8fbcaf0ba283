// Depthwise convolution with channels innermost.
#include <vector>

#include "kernels/conv_kernels.h"
#include "kernels/conv_problem.h"
#include "kernels/thread_pool.h"

namespace neuron::kernels {
namespace {

class ByPixels {
 public:
  ByPixels(const ConvProblem& problem, const ConvPhase& phase)
      : p_(problem), a_(problem.args), phase_(phase) {
    const ConvKernels& kernels = FindConvKernels(p_.isa);
    kernel_ = a_.dtype == DType::kF32    ? kernels.pixel_f32
              : a_.dtype == DType::kBF16 ? kernels.pixel_bf16
                                         : kernels.pixel_f16;
    const int64_t channels = a_.out_channels, bytes = p_.element_bytes();
    bias_.assign(static_cast<size_t>(channels), 0.0f);
    if (a_.bias != nullptr) p_.gemm.widen(a_.bias, a_.bias_stride, channels, bias_.data());
    const auto& s = a_.w_strides;
    for (const ConvTap& d : phase.axes[0].taps) {
      for (const ConvTap& h : phase.axes[1].taps) {
        for (const ConvTap& w : phase.axes[2].taps) {
          const size_t at = weights_.size();
          weights_.resize(at + static_cast<size_t>(channels));
          const int64_t from = d.index * s[2] + h.index * s[3] + w.index * s[4];
          p_.gemm.widen(static_cast<const char*>(a_.w) + from * bytes, s[0], channels,
                        weights_.data() + at);
        }
      }
    }
  }

  void ComputeRow(int64_t item, int64_t depth, int64_t row) const {
    const ConvAxis &d = phase_.axes[0], &h = phase_.axes[1], &w = phase_.axes[2];
    std::vector<int64_t> x_offsets(d.taps.size() * h.taps.size() * w.taps.size());
    std::vector<int64_t> w_offsets(x_offsets.size());
    const auto& s = a_.y_strides;
    const int64_t bytes = p_.element_bytes();
    PixelArgs args{};
    args.x = a_.x;
    args.w = weights_.data();
    args.bias = bias_.data();
    args.x_offsets = x_offsets.data();
    args.w_offsets = w_offsets.data();
    args.channels = a_.out_channels;
    for (int64_t column = 0; column < w.count; ++column) {
      args.taps = Taps(item, depth * d.in_step, row * h.in_step, column * w.in_step,
                       x_offsets.data(), w_offsets.data());
      const int64_t at = item * s[0] + (d.start + depth * d.step) * s[2] +
                         (h.start + row * h.step) * s[3] + (w.start + column * w.step) * s[4];
      args.y = static_cast<char*>(a_.y) + at * bytes;
      kernel_(args);
    }
  }

 private:
  // The taps that lie inside the image.
  int64_t Taps(int64_t item, int64_t depth, int64_t row, int64_t column, int64_t* x_offsets,
               int64_t* w_offsets) const {
    const auto& s = a_.x_strides;
    int64_t count = 0, tap = -1;
    for (const ConvTap& d : phase_.axes[0].taps) {
      for (const ConvTap& h : phase_.axes[1].taps) {
        for (const ConvTap& w : phase_.axes[2].taps) {
          ++tap;
          const int64_t at[3] = {depth + d.offset, row + h.offset, column + w.offset};
          if (at[0] < 0 || at[0] >= a_.in[0] || at[1] < 0 || at[1] >= a_.in[1] || at[2] < 0 ||
              at[2] >= a_.in[2])
            continue;
          x_offsets[count] = item * s[0] + at[0] * s[2] + at[1] * s[3] + at[2] * s[4];
          w_offsets[count++] = tap * a_.out_channels;
        }
      }
    }
    return count;
  }

  const ConvProblem& p_;
  const ConvArgs& a_;
  const ConvPhase& phase_;
  void (*kernel_)(const PixelArgs&);
  std::vector<float> weights_, bias_;  // weights: [tap][channel]
};

}  // namespace

const ConvKernels& FindConvKernels([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) return avx512::GetConvKernels();
  if (isa == Isa::kAvx2) return avx2::GetConvKernels();
#endif
  return portable::GetConvKernels();
}

bool IsDepthwiseByPixels(const ConvProblem& problem) {
  const ConvArgs& a = problem.args;
  return a.groups > 1 && a.groups == a.in_channels && a.groups == a.out_channels &&
         a.x_strides[1] == 1 && a.y_strides[1] == 1;
}

void ConvolvePhaseByPixels(const ConvProblem& problem, const ConvPhase& phase, bool parallel) {
  const ByPixels convolution(problem, phase);
  const int64_t rows = phase.axes[1].count, depths = phase.axes[0].count;
  const auto row = [&](int64_t i) {
    convolution.ComputeRow(i / rows / depths, i / rows % depths, i % rows);
  };
  const int64_t all = problem.args.batch * depths * rows;
  if (parallel) return ThreadPool::Get().ParallelFor(all, row);
  for (int64_t i = 0; i < all; ++i) row(i);
}

}  // namespace neuron::kernels
