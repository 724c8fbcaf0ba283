// The gradient of a convolution's weight: per tap of the kernel one matrix product over all pixels.
#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/thread_pool.h"
#include "kernels/transpose.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kParallelBytes = 256 << 10;

// Five dimensions: batch, depth, height, width, channel.
void Copy(PermuteArgs args, Isa isa) {
  if (CanPermute(args)) return Permute(args, isa);
  const int64_t bytes = args.element_bytes;
  int64_t at[kMaxPermuteRank] = {};
  for (;;) {
    int64_t from = 0, to = 0;
    for (int d = 0; d < args.rank; ++d) {
      from += at[d] * args.source_strides[d];
      to += at[d] * args.out_strides[d];
    }
    std::memcpy(static_cast<char*>(args.out) + to * bytes,
                static_cast<const char*>(args.source) + from * bytes, static_cast<size_t>(bytes));
    int d = args.rank - 1;
    while (d >= 0 && ++at[d] == args.dims[d]) at[d--] = 0;
    if (d < 0) return;
  }
}

// A tensor with channels innermost, dense but for padding around it.
class Dense {
 public:
  Dense(int64_t element_bytes, const void* source, const int64_t (&strides)[5], int64_t batch,
        int64_t channels, const int64_t (&size)[3], const int64_t (&padding)[3], Isa isa)
      : channels_(channels) {
    for (int d = 0; d < 3; ++d) size_[d] = size[d] + 2 * padding[d];
    const int64_t elements = batch * size_[0] * size_[1] * size_[2] * channels;
    const auto bytes = static_cast<size_t>(elements * element_bytes);
    data_ = std::make_unique_for_overwrite<char[]>(bytes);
    if (padding[0] + padding[1] + padding[2] > 0) std::memset(data_.get(), 0, bytes);
    PermuteArgs args;
    args.element_bytes = element_bytes;
    args.rank = 5;
    const int64_t order[5] = {0, 2, 3, 4, 1};
    const int64_t dims[5] = {batch, size[0], size[1], size[2], channels};
    const int64_t out[5] = {size_[0] * size_[1] * size_[2] * channels,
                            size_[1] * size_[2] * channels, size_[2] * channels, channels, 1};
    for (int i = 0; i < 5; ++i) {
      args.dims[i] = dims[i];
      args.source_strides[i] = strides[order[i]];
      args.out_strides[i] = out[i];
    }
    args.source = source;
    args.out = data_.get() + Offset(0, padding[0], padding[1], padding[2]) * element_bytes;
    if (std::find(dims, dims + 5, 0) == dims + 5) Copy(args, isa);
  }

  // In elements.
  int64_t Offset(int64_t item, int64_t depth, int64_t row, int64_t column) const {
    return (((item * size_[0] + depth) * size_[1] + row) * size_[2] + column) * channels_;
  }
  const char* data() const { return data_.get(); }

 private:
  int64_t channels_;
  int64_t size_[3];
  std::unique_ptr<char[]> data_;
};

// What one tap multiplies the gradient with: [item][output pixel][channel].
void GatherTap(const ConvArgs& a, const Dense& x, const int64_t (&tap)[3], char* to) {
  const int64_t bytes = ByteSize(a.dtype);
  const int64_t pixel = a.in_channels * bytes, row_bytes = a.out[2] * pixel;
  const int64_t rows = a.batch * a.out[0] * a.out[1];
  const auto row = [&](int64_t i) {
    const int64_t h = i % a.out[1], d = i / a.out[1] % a.out[0], item = i / a.out[1] / a.out[0];
    const char* from =
        x.data() + x.Offset(item, d * a.stride[0] + tap[0] * a.dilation[0],
                            h * a.stride[1] + tap[1] * a.dilation[1], tap[2] * a.dilation[2]) *
                       bytes;
    char* out = to + i * row_bytes;
    if (a.stride[2] == 1) {
      std::memcpy(out, from, static_cast<size_t>(row_bytes));
      return;
    }
    for (int64_t w = 0; w < a.out[2]; ++w)
      std::memcpy(out + w * pixel, from + w * a.stride[2] * pixel, static_cast<size_t>(pixel));
  };
  if (rows * row_bytes >= kParallelBytes) return ThreadPool::Get().ParallelFor(rows, row);
  for (int64_t i = 0; i < rows; ++i) row(i);
}

}  // namespace

void ConvolutionWeightGrad(const ConvArgs& a, void* w_grad, Isa isa) {
  CheckConvolution(a);
  if (a.transposed)
    NEURON_THROW(kInvalidArgument, "convolution_weight_grad: exchange input and gradient instead");
  const int64_t bytes = ByteSize(a.dtype);
  const int64_t pixels = a.out[0] * a.out[1] * a.out[2];
  const int64_t none[3] = {};
  const Dense x(bytes, a.x, a.x_strides, a.batch, a.in_channels, a.in, a.padding, isa);
  const Dense grad(bytes, a.y, a.y_strides, a.batch, a.out_channels, a.out, none, isa);
  const auto gathered = std::make_unique_for_overwrite<char[]>(
      static_cast<size_t>(a.batch * pixels * a.in_channels * bytes));
  GemmArgs g;
  g.dtype = a.dtype;
  g.batch = a.groups;
  g.m = a.out_channels / a.groups;
  g.n = a.in_channels / a.groups;
  g.k = a.batch * pixels;
  g.a = grad.data();
  g.a_batch_stride = g.m;
  g.a_row_stride = 1;
  g.a_col_stride = a.out_channels;
  g.b = gathered.get();
  g.b_batch_stride = g.n;
  g.b_row_stride = a.in_channels;
  g.b_col_stride = 1;
  g.c_batch_stride = g.m * a.w_strides[0];
  g.c_row_stride = a.w_strides[0];
  g.c_col_stride = a.w_strides[1];
  const int64_t taps = a.kernel[0] * a.kernel[1] * a.kernel[2];
  for (int64_t i = 0; i < taps; ++i) {
    const int64_t tap[3] = {i / a.kernel[2] / a.kernel[1], i / a.kernel[2] % a.kernel[1],
                            i % a.kernel[2]};
    GatherTap(a, x, tap, gathered.get());
    const int64_t at = tap[0] * a.w_strides[2] + tap[1] * a.w_strides[3] + tap[2] * a.w_strides[4];
    g.c = static_cast<char*>(w_grad) + at * bytes;
    Gemm(g, isa);
  }
}

}  // namespace neuron::kernels
