// Attention for few queries and, separately, in f64.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/attention_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kKeyBlock = 512;

// Query row r of a group is query r % q_len of its head r / q_len. Contiguous, as the skinny
// kernels want it.
void CopyQuery(const AttentionProblem& problem, const char* from, char* to) {
  const AttentionArgs& args = problem.args;
  if (problem.gemm->skinny_takes_f32) {
    problem.gemm->widen(from, args.q_strides[3], args.head_dim, reinterpret_cast<float*>(to));
    return;
  }
  const int64_t bytes = problem.element_bytes();
  for (int64_t e = 0; e < args.head_dim; ++e)
    std::memcpy(to + e * bytes, from + e * args.q_strides[3] * bytes, bytes);
}

}  // namespace

bool AttendGroupInPlace(const AttentionProblem& problem, int64_t batch, int64_t kv_head) {
  const AttentionArgs& args = problem.args;
  const GemmKernels& gemm = *problem.gemm;
  const int64_t group = problem.heads_per_group();
  const int64_t rows = group * args.q_len;
  if (rows > kMaxSkinnyRows || args.k_strides[3] != 1 || args.v_strides[3] != 1) return false;
  if (args.kv_len == 0 || args.head_dim == 0 || args.v_dim == 0) return false;
  const int64_t bytes = problem.element_bytes();
  const int64_t row_bytes = args.head_dim * static_cast<int64_t>(sizeof(float));
  const int64_t floats = rows * (kKeyBlock + 2 * args.v_dim);
  char* queries = static_cast<char*>(GetScratch(
      Scratch::kOwn,
      static_cast<size_t>(rows * row_bytes + floats * static_cast<int64_t>(sizeof(float)))));
  float* scores = reinterpret_cast<float*>(queries + rows * row_bytes);
  float* part = scores + rows * kKeyBlock;
  float* sums = part + rows * args.v_dim;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = batch * args.q_strides[0] +
                       (kv_head * group + r / args.q_len) * args.q_strides[1] +
                       r % args.q_len * args.q_strides[2];
    CopyQuery(problem, static_cast<const char*>(args.q) + at * bytes, queries + r * row_bytes);
  }
  const int64_t query_stride = row_bytes / (gemm.skinny_takes_f32 ? 4 : bytes);
  const int64_t probability_stride = kKeyBlock * (gemm.skinny_takes_f32 ? 1 : 4 / bytes);
  float max[kMaxSkinnyRows], total[kMaxSkinnyRows], correction[kMaxSkinnyRows];
  std::fill_n(max, rows, -std::numeric_limits<float>::infinity());
  std::fill_n(total, rows, 0.0f);
  std::fill_n(sums, rows * args.v_dim, 0.0f);
  const int64_t limit = args.causal ? std::min(args.kv_len, args.q_len) : args.kv_len;
  const auto at = [&](const void* data, const int64_t (&s)[4], int64_t key) {
    return static_cast<const char*>(data) + (batch * s[0] + kv_head * s[1] + key * s[2]) * bytes;
  };
  for (int64_t key = 0; key < limit; key += kKeyBlock) {
    const int64_t keys = std::min(kKeyBlock, limit - key);
    gemm.dots(rows, keys, args.head_dim, queries, query_stride, at(args.k, args.k_strides, key),
              args.k_strides[2], scores, kKeyBlock);
    for (int64_t h = 0; h < group; ++h) {
      const int64_t first = h * args.q_len;
      SoftmaxArgs softmax =
          DescribeSoftmax(problem, batch, kv_head * group + h, 0, key, args.q_len, keys);
      softmax.scores = scores + first * kKeyBlock;
      softmax.stride = kKeyBlock;
      softmax.max = max + first;
      softmax.sum = total + first;
      softmax.correction = correction + first;
      problem.softmax.softmax(softmax);
    }
    gemm.rows(rows, args.v_dim, keys, scores, probability_stride, at(args.v, args.v_strides, key),
              args.v_strides[2], part, args.v_dim);
    for (int64_t r = 0; r < rows; ++r) {
      float* sum = sums + r * args.v_dim;
      const float* add = part + r * args.v_dim;
      for (int64_t e = 0; e < args.v_dim; ++e) sum[e] = sum[e] * correction[r] + add[e];
    }
  }
  for (int64_t h = 0; h < group; ++h) {
    const int64_t first = h * args.q_len;
    StoreAttention(problem, batch, kv_head * group + h, 0, args.q_len, sums + first * args.v_dim,
                   args.v_dim, max + first, total + first);
  }
  return true;
}

}  // namespace neuron::kernels
