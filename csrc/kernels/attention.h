// Scaled dot-product attention of the software NeuronCores.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "support/dtype.h"

namespace neuron::kernels {

// out[b,h,i] = sum_j softmax_j(scale * q[b,h,i] . k[b,g,j] + bias[b,h,i,j]) v[b,g,j], g = h /
// (heads / kv_heads). Strides are in elements, in the order batch, head, position, feature; 0
// broadcasts.
struct AttentionArgs {
  DType dtype = DType::kF32;  // of q, k, v and out: f32, bf16, f16 or f64
  int64_t batch = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0, head_dim = 0, v_dim = 0;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  void* out = nullptr;
  int64_t q_strides[4] = {}, k_strides[4] = {}, v_strides[4] = {}, out_strides[4] = {};
  const void* bias = nullptr;       // may be null
  DType bias_dtype = DType::kBool;  // b8: true keeps the key; f32, bf16, f16 or f64: is added
  int64_t bias_strides[4] = {};     // batch, head, query, key
  bool causal = false;              // key j counts for query i if j <= i
  double scale = 1;
  // Probability with which a softmax value is set to 0; the others are divided by 1 - dropout.
  // Which ones: Philox with this seed, from counter `offset` on (DropoutCounters of them).
  double dropout = 0;
  uint64_t seed = 0, offset = 0;
  float* lse =
      nullptr;  // may be null; log of each row's sum of exponentials, -inf where all is masked
  int64_t lse_strides[3] = {};
};

// Returns when out is written. Rows with every key masked are 0, as are all rows if kv_len == 0.
// Streams over the keys (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018),
// so needs no memory for the scores. Inside: f32 for f32 and f16; bf16 has its products in f32 and,
// on AVX512-BF16, rounds the probabilities to bf16 (relative error up to 2^-8 each, as PyTorch's
// CPU kernel does); f64 in f64. Same bits whatever the number of threads. Throws kUnsupported for
// other dtypes, kInvalidArgument if heads is not a multiple of kv_heads.
void Attention(const AttentionArgs& args, Isa isa = ActiveIsa());

// Counters that dropout takes, from the offset on.
int64_t DropoutCounters(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len);

// Gradients of Attention. forward: its arguments, with out and lse as it left them (lse is not read
// in f64). Each gradient has the shape of what it is of and the dtype `forward.dtype`, and may be
// null.
struct AttentionGradArgs {
  AttentionArgs forward;
  const void* grad = nullptr;  // of out
  int64_t grad_strides[4] = {};
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t dq_strides[4] = {}, dk_strides[4] = {}, dv_strides[4] = {};
};

// Recomputes the probabilities block by block: memory grows with the lengths, not with their
// product (T. Dao et al., FlashAttention, 2022, algorithm 4). Sums in f32 (f64 in f64); on
// AVX512-BF16 rounds probabilities and their gradients to bf16 before they are multiplied. Same
// bits whatever the number of threads. Throws as Attention.
void AttentionGrad(const AttentionGradArgs& args, Isa isa = ActiveIsa());

}  // namespace neuron::kernels
