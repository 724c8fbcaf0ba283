// Convolution with few channels per group (depthwise): rows of the input, scaled and added.
#include <algorithm>
#include <vector>

#include "kernels/conv_kernels.h"
#include "kernels/conv_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kBandBytes = 256 << 10;  // of converted input

// One output channel of one item, one index of depth.
class Plane {
 public:
  Plane(const ConvProblem& problem, const ConvPhase& phase, int64_t item, int64_t channel,
        int64_t depth)
      : p_(problem),
        a_(problem.args),
        phase_(phase),
        kernels_(FindConvKernels(problem.isa)),
        item_(item),
        channel_(channel),
        group_(channel / problem.group_out()),
        depth_(depth) {}

  void Compute() const {
    const ConvAxis &d = phase_.axes[0], &h = phase_.axes[1], &w = phase_.axes[2];
    const int64_t columns = w.span(w.count);
    const int64_t images = p_.group_in() * static_cast<int64_t>(d.taps.size());
    const auto bytes = [&](int64_t rows) {
      return images * h.span(rows) * columns * static_cast<int64_t>(sizeof(float));
    };
    int64_t band = h.count;
    while (band > 1 && bytes(band) > kBandBytes) band = (band + 1) / 2;
    float* input = static_cast<float*>(GetScratch(
        Scratch::kOwn,
        static_cast<size_t>(bytes(band) + w.count * static_cast<int64_t>(sizeof(float)))));
    float* sums = input + images * h.span(band) * columns;
    std::vector<float> weights;
    std::vector<int64_t> offsets;
    Taps(h.span(band) * columns, columns, weights, offsets);
    for (int64_t row = 0; row < h.count; row += band) {
      const int64_t rows = std::min(band, h.count - row);
      LoadBand(row, rows, h.span(band), columns, input);
      for (int64_t r = 0; r < rows; ++r) {
        kernels_.sum_row(sums, input + r * h.in_step * columns, offsets.data(), weights.data(),
                         static_cast<int64_t>(weights.size()), w.in_step, w.count);
        StoreRow(row + r, sums);
      }
    }
  }

 private:
  // Weights, and where in the converted input each is for the first output of a row.
  void Taps(int64_t image, int64_t columns, std::vector<float>& weights,
            std::vector<int64_t>& offsets) const {
    const ConvAxis &d = phase_.axes[0], &h = phase_.axes[1], &w = phase_.axes[2];
    int64_t at = 0;
    for (int64_t c = 0; c < p_.group_in(); ++c) {
      for (const ConvTap& dt : d.taps) {
        for (const ConvTap& ht : h.taps) {
          for (const ConvTap& wt : w.taps) {
            weights.push_back(Weight(c, dt.index, ht.index, wt.index));
            offsets.push_back(at + (ht.offset - h.first()) * columns + wt.offset - w.first());
          }
        }
        at += image;
      }
    }
  }

  // The input of a band of output rows, [channel][tap of depth][row][column].
  void LoadBand(int64_t row, int64_t rows, int64_t image_rows, int64_t columns, float* to) const {
    const ConvAxis &d = phase_.axes[0], &h = phase_.axes[1];
    for (int64_t c = 0; c < p_.group_in(); ++c) {
      for (const ConvTap& dt : d.taps) {
        for (int64_t r = 0; r < h.span(rows); ++r) {
          LoadRow(c, depth_ * d.in_step + dt.offset, row * h.in_step + h.first() + r, columns,
                  to + r * columns);
        }
        to += image_rows * columns;
      }
    }
  }

  // Zeros outside the image.
  void LoadRow(int64_t c, int64_t depth, int64_t row, int64_t columns, float* to) const {
    if (depth < 0 || depth >= a_.in[0] || row < 0 || row >= a_.in[1]) {
      std::fill_n(to, columns, 0.0f);
      return;
    }
    const ConvAxis& w = phase_.axes[2];
    const int64_t left = std::clamp<int64_t>(-w.first(), 0, columns);
    const int64_t right = std::clamp<int64_t>(a_.in[2] - w.first(), left, columns);
    std::fill_n(to, left, 0.0f);
    std::fill(to + right, to + columns, 0.0f);
    const auto& s = a_.x_strides;
    const int64_t at = item_ * s[0] + (group_ * p_.group_in() + c) * s[1] + depth * s[2] +
                       row * s[3] + (w.first() + left) * s[4];
    p_.gemm.widen(static_cast<const char*>(a_.x) + at * p_.element_bytes(), s[4], right - left,
                  to + left);
  }

  float Weight(int64_t c, int64_t d, int64_t h, int64_t w) const {
    const auto& s = a_.w_strides;
    const int64_t at = group_ * p_.w_group() + channel_ % p_.group_out() * p_.w_out() +
                       c * p_.w_in() + d * s[2] + h * s[3] + w * s[4];
    float value;
    p_.gemm.widen(static_cast<const char*>(a_.w) + at * p_.element_bytes(), 1, 1, &value);
    return value;
  }

  void StoreRow(int64_t row, const float* sums) const {
    const ConvAxis &d = phase_.axes[0], &h = phase_.axes[1], &w = phase_.axes[2];
    const auto& s = a_.y_strides;
    const int64_t at = item_ * s[0] + channel_ * s[1] + (d.start + depth_ * d.step) * s[2] +
                       (h.start + row * h.step) * s[3] + w.start * s[4];
    StoreArgs store{};
    store.sums = sums;
    store.rows = 1;
    store.cols = static_cast<int>(w.count);
    store.c = static_cast<char*>(a_.y) + at * p_.element_bytes();
    store.c_col_stride = s[4] * w.step;
    store.alpha = 1;
    if (a_.bias != nullptr) {
      store.d = static_cast<const char*>(a_.bias) + channel_ * a_.bias_stride * p_.element_bytes();
      store.beta = 1;
    }
    p_.gemm.store(store);
  }

  const ConvProblem& p_;
  const ConvArgs& a_;
  const ConvPhase& phase_;
  const ConvKernels& kernels_;
  const int64_t item_, channel_, group_, depth_;
};

}  // namespace

void ConvolvePhaseByRows(const ConvProblem& problem, const ConvPhase& phase, bool parallel) {
  const ConvArgs& a = problem.args;
  const int64_t depths = phase.axes[0].count;
  const auto plane = [&](int64_t i) {
    Plane(problem, phase, i / depths / a.out_channels, i / depths % a.out_channels, i % depths)
        .Compute();
  };
  const int64_t planes = a.batch * a.out_channels * depths;
  if (parallel) return ThreadPool::Get().ParallelFor(planes, plane);
  for (int64_t i = 0; i < planes; ++i) plane(i);
}

}  // namespace neuron::kernels
