// The ways to compute attention for one group: a key head of one batch item with the query heads
// that use it. Internal to attention*.cc.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/attention_kernels.h"
#include "kernels/gemm_kernels.h"
#include "kernels/gemm_problem.h"

namespace neuron::kernels {

struct AttentionProblem {
  const AttentionArgs& args;
  const GemmKernels* gemm;
  const AttentionKernels& softmax;

  int64_t heads_per_group() const { return args.heads / args.kv_heads; }
  int64_t element_bytes() const { return ByteSize(args.dtype); }
};

// Keys and values packed once, queries in blocks. Any layout. parallel: query blocks on all
// threads.
void AttendGroup(const AttentionProblem& problem, int64_t batch, int64_t kv_head, bool parallel);

// Few queries (decoding): keys and values are read once, in place. False, and nothing done, if
// there are too many queries or the layout does not allow it.
bool AttendGroupInPlace(const AttentionProblem& problem, int64_t batch, int64_t kv_head);

void AttendGroupF64(const AttentionProblem& problem, int64_t batch, int64_t kv_head, bool parallel);

// The gradient; `probabilities` packs f32 or bf16, as the softmax writes them.
void AttentionGradBlocked(const AttentionProblem& problem, const GemmKernels& probabilities,
                          const AttentionGradArgs& args, bool parallel);
void AttentionGradF64(const AttentionGradArgs& args, bool parallel);

// Dropout of a head's block from `query` and `key` (a multiple of 4) on.
DropoutArgs DescribeDropout(const AttentionArgs& args, int64_t batch, int64_t head, int64_t query,
                            int64_t key);
// What remains is divided by the probability of being kept: this is its inverse, 0 if nothing is.
double KeepScale(const AttentionArgs& args);

// What softmax needs for `rows` queries of a head from `query` on and keys from `key` on.
SoftmaxArgs DescribeSoftmax(const AttentionProblem& problem, int64_t batch, int64_t head,
                            int64_t query, int64_t key, int64_t rows, int64_t keys);

// Divides sums by each row's total and stores them, and the log-sum-exp if wanted. sums:
// [rows][stride].
void StoreAttention(const AttentionProblem& problem, int64_t batch, int64_t head, int64_t query,
                    int64_t rows, const float* sums, int64_t stride, const float* max,
                    const float* total);

}  // namespace neuron::kernels
