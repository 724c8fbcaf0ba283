#include "platform/host/engines.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/gemm.h"
#include "kernels/transpose.h"
#include "platform/host/library.h"
#include "support/error.h"

namespace neuron::host {
namespace {

// tensors: a [batch,m,k], b [batch,k,n], addend? and result [batch,m,n]; doubles: alpha, beta.
void Gemm(const LibraryCall& call) {
  const TensorDesc& a = call.tensors[0];
  const TensorDesc& b = call.tensors[1];
  const TensorDesc& c = call.tensors.back();
  kernels::GemmArgs args{};
  args.dtype = c.dtype;
  args.m = a.dims[1];
  args.k = a.dims[2];
  args.n = b.dims[2];
  args.batch = c.dims[0];
  args.a = call.data[0];
  args.a_batch_stride = a.strides[0];
  args.a_row_stride = a.strides[1];
  args.a_col_stride = a.strides[2];
  args.b = call.data[1];
  args.b_batch_stride = b.strides[0];
  args.b_row_stride = b.strides[1];
  args.b_col_stride = b.strides[2];
  args.c = call.data.back();
  args.c_batch_stride = c.strides[0];
  args.c_row_stride = c.strides[1];
  args.c_col_stride = c.strides[2];
  args.alpha = call.attributes.doubles[0];
  if (call.tensors.size() == 4) {
    const TensorDesc& d = call.tensors[2];
    args.beta = call.attributes.doubles[1];
    args.d = call.data[2];
    args.d_batch_stride = d.strides[0];
    args.d_row_stride = d.strides[1];
    args.d_col_stride = d.strides[2];
  }
  args.epilogue = call.epilogue;
  kernels::Gemm(args);
}

void CopyStrides(const TensorDesc& tensor, int64_t* strides) {
  for (size_t i = 0; i < tensor.strides.size(); ++i) strides[i] = tensor.strides[i];
}

// q, k, v, bias?, random? from tensor `next` on; attributes as csrc/compiler/library_calls.cc says.
kernels::AttentionArgs DescribeAttention(const LibraryCall& call, size_t& next) {
  const TensorDesc& q = call.tensors[next];
  const TensorDesc& k = call.tensors[next + 1];
  const TensorDesc& v = call.tensors[next + 2];
  kernels::AttentionArgs args{};
  args.dtype = q.dtype;
  args.batch = q.dims[0];
  args.heads = q.dims[1];
  args.q_len = q.dims[2];
  args.head_dim = q.dims[3];
  args.kv_heads = k.dims[1];
  args.kv_len = k.dims[2];
  args.v_dim = v.dims[3];
  args.q = call.data[next];
  args.k = call.data[next + 1];
  args.v = call.data[next + 2];
  CopyStrides(q, args.q_strides);
  CopyStrides(k, args.k_strides);
  CopyStrides(v, args.v_strides);
  next += 3;
  if (call.attributes.ints[1] != 0) {
    args.bias = call.data[next];
    args.bias_dtype = call.tensors[next].dtype;
    CopyStrides(call.tensors[next++], args.bias_strides);
  }
  if (call.attributes.doubles[1] >= 0) {
    args.dropout = call.attributes.doubles[1];
    const auto* random = static_cast<const uint64_t*>(call.data[next]);
    args.seed = random[0];
    args.offset = random[call.tensors[next++].strides[0]];
  }
  args.causal = call.attributes.ints[0] != 0;
  args.scale = call.attributes.doubles[0];
  return args;
}

// tensors: q, k, v, bias?, random?, logsumexp?, result.
void Attention(const LibraryCall& call) {
  size_t next = 0;
  kernels::AttentionArgs args = DescribeAttention(call, next);
  const int64_t wanted = call.attributes.ints[2];
  if ((wanted & 2) == 0)
    NEURON_THROW(kUnsupported, "attention: a log-sum-exp without the attention's result");
  if ((wanted & 1) != 0) {
    args.lse = static_cast<float*>(call.data[next]);
    CopyStrides(call.tensors[next++], args.lse_strides);
  }
  args.out = call.data[next];
  CopyStrides(call.tensors[next], args.out_strides);
  kernels::Attention(args);
}

// tensors: gradient of the result, result, logsumexp, q, k, v, bias?, random?, then the gradients
// of q, k and v that are wanted.
void AttentionGrad(const LibraryCall& call) {
  size_t next = 3;
  kernels::AttentionGradArgs args{};
  args.forward = DescribeAttention(call, next);
  args.grad = call.data[0];
  CopyStrides(call.tensors[0], args.grad_strides);
  args.forward.out = call.data[1];
  CopyStrides(call.tensors[1], args.forward.out_strides);
  args.forward.lse = static_cast<float*>(call.data[2]);
  CopyStrides(call.tensors[2], args.forward.lse_strides);
  void** const gradients[] = {&args.dq, &args.dk, &args.dv};
  int64_t* const strides[] = {args.dq_strides, args.dk_strides, args.dv_strides};
  for (int i = 0; i < 3; ++i) {
    if ((call.attributes.ints[2] >> i & 1) == 0) continue;
    *gradients[i] = call.data[next];
    CopyStrides(call.tensors[next++], strides[i]);
  }
  kernels::AttentionGrad(args);
}

// ints: transposed, groups, rank, then stride, padding and dilation.
kernels::ConvArgs DescribeConvolution(const TensorDesc& x, const TensorDesc& w, const TensorDesc& y,
                                      const std::vector<int64_t>& ints) {
  const auto rank = static_cast<size_t>(ints[2]);
  kernels::ConvArgs args{};
  args.dtype = x.dtype;
  args.batch = x.dims[0];
  args.transposed = ints[0] != 0;
  args.groups = ints[1];
  args.in_channels = x.dims[1];
  args.out_channels = y.dims[1];
  for (size_t i = 0; i < 3; ++i) {
    const bool has = i + rank >= 3;
    const size_t d = i + rank - 3;
    args.in[i] = has ? x.dims[d + 2] : 1;
    args.out[i] = has ? y.dims[d + 2] : 1;
    args.kernel[i] = has ? w.dims[d + 2] : 1;
    args.stride[i] = has ? ints[3 + d] : 1;
    args.padding[i] = has ? ints[3 + rank + d] : 0;
    args.dilation[i] = has ? ints[3 + 2 * rank + d] : 1;
    args.x_strides[i + 2] = has ? x.strides[d + 2] : 0;
    args.w_strides[i + 2] = has ? w.strides[d + 2] : 0;
    args.y_strides[i + 2] = has ? y.strides[d + 2] : 0;
  }
  for (size_t i = 0; i < 2; ++i) {
    args.x_strides[i] = x.strides[i];
    args.w_strides[i] = w.strides[i];
    args.y_strides[i] = y.strides[i];
  }
  return args;
}

// tensors: input, gradient of the result, gradient of the weight.
void ConvolutionWeightGrad(const LibraryCall& call) {
  NEURON_CHECK(call.attributes.ints[2] <= 3, "convolution of ", call.attributes.ints[2],
               " dimensions");
  kernels::ConvArgs args =
      DescribeConvolution(call.tensors[0], call.tensors[2], call.tensors[1], call.attributes.ints);
  args.x = call.data[0];
  args.y = call.data[1];
  kernels::ConvolutionWeightGrad(args, call.data[2]);
}

// tensors: source, result, of one shape and size of element.
void Permute(const LibraryCall& call) {
  const TensorDesc& source = call.tensors[0];
  kernels::PermuteArgs args{};
  args.element_bytes = ByteSize(source.dtype);
  args.rank = static_cast<int>(source.dims.size());
  NEURON_CHECK(args.rank <= kernels::kMaxPermuteRank, "permute of rank ", args.rank);
  std::copy(source.dims.begin(), source.dims.end(), args.dims);
  args.source = call.data[0];
  args.out = call.data[1];
  CopyStrides(source, args.source_strides);
  CopyStrides(call.tensors[1], args.out_strides);
  kernels::Permute(args);
}

}  // namespace

bool CanPermute(const TensorDesc& source, const TensorDesc& result) {
  if (source.dims.size() > static_cast<size_t>(kernels::kMaxPermuteRank)) return false;
  kernels::PermuteArgs args{};
  args.element_bytes = ByteSize(source.dtype);
  args.rank = static_cast<int>(source.dims.size());
  std::copy(source.dims.begin(), source.dims.end(), args.dims);
  CopyStrides(source, args.source_strides);
  CopyStrides(result, args.out_strides);
  return kernels::CanPermute(args);
}

bool CanConvolve(const LibraryCall& call) {
  const DType dtype = call.tensors[0].dtype;
  return (dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16) &&
         call.attributes.ints[2] <= 3;
}

void Convolve(const LibraryCall& call) {
  kernels::ConvArgs args = DescribeConvolution(call.tensors[0], call.tensors[1],
                                               call.tensors.back(), call.attributes.ints);
  args.x = call.data[0];
  args.w = call.data[1];
  args.y = call.data.back();
  if (call.tensors.size() == 4) {
    args.bias = call.data[2];
    args.bias_stride = call.tensors[2].strides[0];
  }
  kernels::Convolution(args);
}

void RegisterEngines() {
  RegisterLibraryFunction("convolution_weight_grad", ConvolutionWeightGrad);
  RegisterLibraryFunction("permute", Permute);
  RegisterLibraryFunction("gemm", Gemm);
  RegisterLibraryFunction("attention", Attention);
  RegisterLibraryFunction("attention_grad", AttentionGrad);
}

}  // namespace neuron::host
