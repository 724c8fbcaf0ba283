#include "kernels/conv.h"

#include <algorithm>

#include "kernels/conv_problem.h"
#include "kernels/gemm.h"
#include "kernels/gemm_problem.h"
#include "kernels/thread_pool.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr double kParallelWork = 5e5;  // multiplications worth waking a thread
// Groups with at most so many products per tap leave the matrix kernels' columns empty.
constexpr int64_t kFewProducts = 16;

ConvAxis MakeAxis(const ConvArgs& a, int d, int64_t phase) {
  ConvAxis axis{};
  if (!a.transposed) {
    axis = {0, 1, a.out[d], a.stride[d], {}};
    for (int64_t k = 0; k < a.kernel[d]; ++k)
      axis.taps.push_back({k, k * a.dilation[d] - a.padding[d]});
    return axis;
  }
  axis = {phase,
          a.stride[d],
          std::max<int64_t>(0, (a.out[d] - phase + a.stride[d] - 1) / a.stride[d]),
          1,
          {}};
  for (int64_t k = a.kernel[d] - 1; k >= 0; --k) {
    const int64_t shift = phase + a.padding[d] - k * a.dilation[d];
    if (shift % a.stride[d] == 0) axis.taps.push_back({k, shift / a.stride[d]});
  }
  return axis;
}

// The spatial dimensions are one, evenly spaced.
bool Collapses(const int64_t (&size)[3], const int64_t (&strides)[5]) {
  return (size[0] == 1 || strides[2] == strides[3] * size[1]) &&
         (size[1] == 1 || strides[3] == strides[4] * size[2]);
}

bool IsPointwise(const ConvArgs& a) {
  for (int d = 0; d < 3; ++d) {
    if (a.kernel[d] != 1 || a.stride[d] != 1 || a.padding[d] != 0 || a.out[d] != a.in[d])
      return false;
  }
  return a.groups == 1 && Collapses(a.in, a.x_strides) && Collapses(a.out, a.y_strides);
}

// Distance of neighbours along the collapsed dimension.
int64_t Step(const int64_t (&size)[3], const int64_t (&strides)[5]) {
  for (int d = 2; d >= 0; --d) {
    if (size[d] != 1) return strides[d + 2];
  }
  return 0;
}

void Pointwise(const ConvProblem& problem, Isa isa) {
  const ConvArgs& a = problem.args;
  GemmArgs g;
  g.dtype = a.dtype;
  g.batch = a.batch;
  g.m = a.out[0] * a.out[1] * a.out[2];
  g.n = a.out_channels;
  g.k = a.in_channels;
  g.a = a.x;
  g.a_batch_stride = a.x_strides[0];
  g.a_row_stride = Step(a.in, a.x_strides);
  g.a_col_stride = a.x_strides[1];
  g.b = a.w;
  g.b_row_stride = problem.w_in();
  g.b_col_stride = problem.w_out();
  g.c = a.y;
  g.c_batch_stride = a.y_strides[0];
  g.c_row_stride = Step(a.out, a.y_strides);
  g.c_col_stride = a.y_strides[1];
  if (a.bias != nullptr) {
    g.beta = 1;
    g.d = a.bias;
    g.d_col_stride = a.bias_stride;
  }
  Gemm(g, isa);
}

}  // namespace

void CheckConvolution(const ConvArgs& a) {
  if (a.groups < 1 || a.in_channels % a.groups != 0 || a.out_channels % a.groups != 0) {
    NEURON_THROW(kInvalidArgument, "convolution: ", a.groups, " groups do not divide ",
                 a.in_channels, " and ", a.out_channels, " channels");
  }
  for (int d = 0; d < 3; ++d) {
    if (a.kernel[d] < 0 || a.stride[d] < 1 || a.dilation[d] < 1 || a.padding[d] < 0)
      NEURON_THROW(kInvalidArgument, "convolution: kernel ", a.kernel[d], ", stride ", a.stride[d],
                   ", dilation ", a.dilation[d], ", padding ", a.padding[d]);
    const int64_t reach = a.dilation[d] * (a.kernel[d] - 1);
    if (!a.transposed && a.out[d] > 0 &&
        (a.out[d] - 1) * a.stride[d] + reach > a.in[d] + 2 * a.padding[d] - 1)
      NEURON_THROW(kInvalidArgument, "convolution: output size ", a.out[d],
                   " exceeds what the input of ", a.in[d], " gives");
  }
}

std::vector<ConvPhase> MakePhases(const ConvArgs& a) {
  std::vector<ConvPhase> phases;
  const auto count = [&](int d) { return a.transposed ? a.stride[d] : 1; };
  for (int64_t i = 0; i < count(0) * count(1) * count(2); ++i) {
    const int64_t phase[3] = {i / count(2) / count(1), i / count(2) % count(1), i % count(2)};
    ConvPhase made;
    for (int d = 0; d < 3; ++d) made.axes[d] = MakeAxis(a, d, phase[d]);
    if (made.axes[0].count > 0 && made.axes[1].count > 0 && made.axes[2].count > 0)
      phases.push_back(std::move(made));
  }
  return phases;
}

void Convolution(const ConvArgs& args, Isa isa) {
  if (args.dtype != DType::kF32 && args.dtype != DType::kBF16 && args.dtype != DType::kF16)
    NEURON_THROW(kUnsupported, "convolution: no kernel for ", Name(args.dtype));
  CheckConvolution(args);
  if (args.batch == 0 || args.out_channels == 0) return;
  const ConvProblem problem{args, *FindGemmKernels(args.dtype, isa), isa};
  if (IsPointwise(args)) return Pointwise(problem, isa);
  double work = 1;
  for (int d = 0; d < 3; ++d)
    work *= static_cast<double>(args.kernel[d] * (args.transposed ? args.in[d] : args.out[d]));
  work *= static_cast<double>(args.batch * args.in_channels * problem.group_out());
  const bool parallel = ThreadPool::Get().size() > 1 && work >= kParallelWork;
  const bool by_rows = args.groups > 1 && problem.group_in() * problem.group_out() <= kFewProducts;
  for (const ConvPhase& phase : MakePhases(args)) {
    if (IsDepthwiseByPixels(problem)) {
      ConvolvePhaseByPixels(problem, phase, parallel);
    } else if (by_rows) {
      ConvolvePhaseByRows(problem, phase, parallel);
    } else {
      ConvolvePhase(problem, phase, parallel);
    }
  }
}

}  // namespace neuron::kernels
