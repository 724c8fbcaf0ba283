// A convolution as its parts see it. Internal to conv*.cc.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/conv.h"
#include "kernels/gemm_kernels.h"

namespace neuron::kernels {

// One spatial dimension of a phase. Output start + step * t, t < count, sums over the taps: element
// `index` of the kernel with input element in_step * t + offset, where there is one.
struct ConvTap {
  int64_t index, offset;
};
struct ConvAxis {
  int64_t start, step, count, in_step;
  std::vector<ConvTap> taps;  // by rising offset

  int64_t first() const { return taps.empty() ? 0 : taps.front().offset; }
  // Input elements from the first to the last that `outputs` neighbours look at.
  int64_t span(int64_t outputs) const {
    return taps.empty() ? 0 : (outputs - 1) * in_step + taps.back().offset - first() + 1;
  }
};

struct ConvPhase {
  ConvAxis axes[3];
};

struct ConvProblem {
  const ConvArgs& args;
  const GemmKernels& gemm;
  Isa isa;

  int64_t element_bytes() const { return ByteSize(args.dtype); }
  int64_t group_in() const { return args.in_channels / args.groups; }
  int64_t group_out() const { return args.out_channels / args.groups; }
  // Of the weight: its output channels, its input channels, and where a group starts.
  int64_t w_out() const { return args.w_strides[args.transposed ? 1 : 0]; }
  int64_t w_in() const { return args.w_strides[args.transposed ? 0 : 1]; }
  int64_t w_group() const {
    return args.w_strides[0] * (args.transposed ? group_in() : group_out());
  }
};

// Of an ordinary convolution one, of a transposed one the product of its strides.
std::vector<ConvPhase> MakePhases(const ConvArgs& args);

// By matrix kernels; for few channels per group, row by row.
void ConvolvePhase(const ConvProblem& problem, const ConvPhase& phase, bool parallel);
void ConvolvePhaseByRows(const ConvProblem& problem, const ConvPhase& phase, bool parallel);
// Depthwise with channels innermost in x and y: pixel by pixel.
bool IsDepthwiseByPixels(const ConvProblem& problem);
void ConvolvePhaseByPixels(const ConvProblem& problem, const ConvPhase& phase, bool parallel);

}  // namespace neuron::kernels
