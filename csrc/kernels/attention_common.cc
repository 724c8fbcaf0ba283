#include <cmath>

#include "kernels/attention_problem.h"

namespace neuron::kernels {

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
        total[i] == 0 ? 0 : 1.0 / static_cast<double>(total[i]);  // 0: every key is masked
    problem.gemm->store(store);
    if (args.lse == nullptr) continue;
    args.lse[batch * args.lse_strides[0] + head * args.lse_strides[1] +
             (query + i) * args.lse_strides[2]] = max[i] + std::log(total[i]);
  }
}

}  // namespace neuron::kernels
