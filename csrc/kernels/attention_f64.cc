// Attention in f64: right before fast.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/attention_problem.h"
#include "kernels/thread_pool.h"

namespace neuron::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  float value;
  if (exponent == 31) {
    value = fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                          : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    value = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

// What element `at` of the mask adds to a score.
double Bias(const AttentionArgs& args, int64_t at) {
  switch (args.bias_dtype) {
    case DType::kF64:
      return static_cast<const double*>(args.bias)[at];
    case DType::kF32:
      return static_cast<const float*>(args.bias)[at];
    case DType::kF16:
      return HalfToFloat(static_cast<const uint16_t*>(args.bias)[at]);
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(static_cast<const uint16_t*>(args.bias)[at])
                                  << 16);
    default:
      return static_cast<const uint8_t*>(args.bias)[at] != 0 ? 0 : -kInfinity;
  }
}

void AttendRow(const AttentionArgs& args, int64_t b, int64_t h, int64_t i) {
  const int64_t g = h / (args.heads / args.kv_heads);
  const auto at = [&](const void* data, const int64_t (&s)[4], int64_t head, int64_t row) {
    return static_cast<const double*>(data) + b * s[0] + head * s[1] + row * s[2];
  };
  const int64_t keys = args.causal ? std::min(args.kv_len, i + 1) : args.kv_len;
  std::vector<double> scores(static_cast<size_t>(keys));
  const double* q = at(args.q, args.q_strides, h, i);
  double max = -kInfinity;
  for (int64_t j = 0; j < keys; ++j) {
    const double* k = at(args.k, args.k_strides, g, j);
    double dot = 0;
    for (int64_t e = 0; e < args.head_dim; ++e)
      dot += q[e * args.q_strides[3]] * k[e * args.k_strides[3]];
    double& score = scores[static_cast<size_t>(j)];
    score = dot * args.scale;
    if (args.bias != nullptr) {
      const auto& s = args.bias_strides;
      const double bias = Bias(args, b * s[0] + h * s[1] + i * s[2] + j * s[3]);
      score = args.bias_dtype == DType::kBool && bias != 0 ? -kInfinity : score + bias;
    }
    max = std::max(max, score);
  }
  const double shift = max == -kInfinity ? 0 : max;
  double total = 0;
  for (double& score : scores) total += score = std::exp(score - shift);
  double* out = static_cast<double*>(args.out) + b * args.out_strides[0] + h * args.out_strides[1] +
                i * args.out_strides[2];
  for (int64_t e = 0; e < args.v_dim; ++e) {
    double sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      sum +=
          scores[static_cast<size_t>(j)] * at(args.v, args.v_strides, g, j)[e * args.v_strides[3]];
    }
    out[e * args.out_strides[3]] = total == 0 ? 0 : sum / total;
  }
  if (args.lse != nullptr) {
    args.lse[b * args.lse_strides[0] + h * args.lse_strides[1] + i * args.lse_strides[2]] =
        static_cast<float>(max + std::log(total));
  }
}

}  // namespace

void AttendGroupF64(const AttentionProblem& problem, int64_t batch, int64_t kv_head,
                    bool parallel) {
  const AttentionArgs& args = problem.args;
  const auto row = [&](int64_t i) {
    AttendRow(args, batch, kv_head * problem.heads_per_group() + i / args.q_len, i % args.q_len);
  };
  const int64_t rows = problem.heads_per_group() * args.q_len;
  if (parallel) return ThreadPool::Get().ParallelFor(rows, row);
  for (int64_t i = 0; i < rows; ++i) row(i);
}

}  // namespace neuron::kernels
