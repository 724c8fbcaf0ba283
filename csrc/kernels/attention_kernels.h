// What an instruction set provides to attention besides the matrix product's kernels. Same rules as
// gemm_kernels.h.
#pragma once

#include <cstdint>

#include "support/dtype.h"

namespace neuron::kernels {

inline constexpr int kMaxBlockKeys = 512;

// Dropout of a block. Row i's key j is word j % 4 of counter + i * row_counters + j / 4; it is kept
// if that is at least the threshold.
struct DropoutArgs {
  bool active;
  uint64_t seed, counter, row_counters;
  uint32_t threshold;
};

// One block of scores of one head. Updates the running state of each row and turns its scores into
// probabilities relative to the new maximum, in place: as f32, or as bf16 from the start of the
// row.
struct SoftmaxArgs {
  float* scores;
  int64_t stride;  // elements of f32
  int rows, keys;
  float scale;
  const void* bias;  // of row 0 and key 0; null: none
  DType bias_dtype;
  int64_t bias_row, bias_key;  // strides in elements
  // Row i may look at the first causal_keys + i keys of the block, if causal.
  bool causal;
  int64_t causal_keys;
  bool to_bf16;
  DropoutArgs dropout;
  float* max;         // running maximum of each row, -inf at first
  float* sum;         // running sum of exponentials
  float* correction;  // out: what earlier results of each row are to be multiplied by
};

// One block of the gradient: see attention_gradient.inc. Of `block`, all but the running state is
// used.
struct GradientArgs {
  SoftmaxArgs block;
  float* grads;  // with the scores' stride
  const float* lse;
  const float* delta;  // sum of output * its gradient, of each row
  float keep_scale;    // 1 / (1 - dropout's probability)
};

struct AttentionKernels {
  void (*softmax)(const SoftmaxArgs&);
  void (*gradient)(const GradientArgs&);
  // x[i] *= factor for `count` elements.
  void (*scale)(float* x, int64_t count, float factor);
};

namespace portable {
const AttentionKernels& GetAttentionKernels();
}
#if defined(__x86_64__)
namespace avx2 {
const AttentionKernels& GetAttentionKernels();
}
namespace avx512 {
const AttentionKernels& GetAttentionKernels();
}
#endif

}  // namespace neuron::kernels
