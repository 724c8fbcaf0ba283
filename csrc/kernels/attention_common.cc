#include <algorithm>
#include <cmath>

#include "kernels/attention_problem.h"

namespace neuron::kernels {

double KeepScale(const AttentionArgs& args) {
  return args.dropout < 1 ? 1 / (1 - args.dropout) : 0;
}

DropoutArgs DescribeDropout(const AttentionArgs& args, int64_t batch, int64_t head, int64_t query,
                            int64_t key) {
  DropoutArgs dropout{};
  if (args.dropout == 0) return dropout;
  const int64_t row = (batch * args.heads + head) * args.q_len + query;
  const int64_t row_counters = (args.kv_len + 3) / 4;
  dropout.active = true;
  dropout.seed = args.seed;
  dropout.counter = args.offset + static_cast<uint64_t>(row * row_counters + key / 4);
  dropout.row_counters = static_cast<uint64_t>(row_counters);
  dropout.threshold = static_cast<uint32_t>(std::min(args.dropout * 0x1p32, 0x1p32 - 1));
  return dropout;
}

SoftmaxArgs DescribeSoftmax(const AttentionProblem& problem, int64_t batch, int64_t head,
                            int64_t query, int64_t key, int64_t rows, int64_t keys) {
  const AttentionArgs& args = problem.args;
  SoftmaxArgs softmax{};
  softmax.rows = static_cast<int>(rows);
  softmax.keys = static_cast<int>(keys);
  softmax.scale = static_cast<float>(args.scale);
  if (args.bias != nullptr) {
    const int64_t at = batch * args.bias_strides[0] + head * args.bias_strides[1] +
                       query * args.bias_strides[2] + key * args.bias_strides[3];
    softmax.bias = static_cast<const char*>(args.bias) + at * ByteSize(args.bias_dtype);
    softmax.bias_dtype = args.bias_dtype;
    softmax.bias_row = args.bias_strides[2];
    softmax.bias_key = args.bias_strides[3];
  }
  softmax.causal = args.causal;
  softmax.causal_keys = query + 1 - key;
  softmax.to_bf16 = problem.gemm->packed_bytes == 2;
  softmax.dropout = DescribeDropout(args, batch, head, query, key);
  return softmax;
}

void StoreAttention(const AttentionProblem& problem, int64_t batch, int64_t head, int64_t query,
                    int64_t rows, const float* sums, int64_t stride, const float* max,
                    const float* total) {
  const AttentionArgs& args = problem.args;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t at = batch * args.out_strides[0] + head * args.out_strides[1] +
                       (query + i) * args.out_strides[2];
    StoreArgs store{};
    store.sums = sums + i * stride;
    store.rows = 1;
    store.cols = static_cast<int>(args.v_dim);
    store.c = static_cast<char*>(args.out) + at * problem.element_bytes();
    store.c_col_stride = args.out_strides[3];
    store.alpha =
        total[i] == 0 ? 0 : KeepScale(args) / static_cast<double>(total[i]);  // 0: all masked
    problem.gemm->store(store);
    if (args.lse == nullptr) continue;
    args.lse[batch * args.lse_strides[0] + head * args.lse_strides[1] +
             (query + i) * args.lse_strides[2]] = max[i] + std::log(total[i]);
  }
}

}  // namespace neuron::kernels
