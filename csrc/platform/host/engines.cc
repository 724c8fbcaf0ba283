#include "platform/host/engines.h"

#include "kernels/attention.h"
#include "kernels/gemm.h"
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
  kernels::Gemm(args);
}

void CopyStrides(const TensorDesc& tensor, int64_t* strides) {
  for (size_t i = 0; i < tensor.strides.size(); ++i) strides[i] = tensor.strides[i];
}

// tensors: q, k, v, bias?, logsumexp?, out (logsumexp is the only one of rank 3); ints: is_causal;
// doubles: scale.
void Attention(const LibraryCall& call) {
  const TensorDesc& q = call.tensors[0];
  const TensorDesc& k = call.tensors[1];
  const TensorDesc& v = call.tensors[2];
  kernels::AttentionArgs args{};
  args.dtype = q.dtype;
  args.batch = q.dims[0];
  args.heads = q.dims[1];
  args.q_len = q.dims[2];
  args.head_dim = q.dims[3];
  args.kv_heads = k.dims[1];
  args.kv_len = k.dims[2];
  args.v_dim = v.dims[3];
  args.q = call.data[0];
  args.k = call.data[1];
  args.v = call.data[2];
  args.out = call.data.back();
  CopyStrides(q, args.q_strides);
  CopyStrides(k, args.k_strides);
  CopyStrides(v, args.v_strides);
  CopyStrides(call.tensors.back(), args.out_strides);
  for (size_t i = 3; i + 1 < call.tensors.size(); ++i) {
    const TensorDesc& extra = call.tensors[i];
    if (extra.dims.size() == 3) {
      args.lse = static_cast<float*>(call.data[i]);
      CopyStrides(extra, args.lse_strides);
    } else {
      args.bias = call.data[i];
      args.bias_dtype = extra.dtype;
      CopyStrides(extra, args.bias_strides);
    }
  }
  args.causal = call.attributes.ints[0] != 0;
  args.scale = call.attributes.doubles[0];
  kernels::Attention(args);
}

}  // namespace

void RegisterEngines() {
  RegisterLibraryFunction("gemm", Gemm);
  RegisterLibraryFunction("attention", Attention);
}

}  // namespace neuron::host
