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

#include "kernels/philox.inc"

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

const double* Row(const void* data, const int64_t (&s)[4], int64_t b, int64_t h, int64_t i) {
  return static_cast<const double*>(data) + b * s[0] + h * s[1] + i * s[2];
}
double* Row(void* data, const int64_t (&s)[4], int64_t b, int64_t h, int64_t i) {
  return static_cast<double*>(data) + b * s[0] + h * s[1] + i * s[2];
}

// Softmax of one query's scores; the log-sum-exp is -inf and all are 0 if every key is masked.
double Probabilities(const AttentionArgs& args, int64_t b, int64_t h, int64_t i,
                     std::vector<double>& p) {
  const int64_t g = h / (args.heads / args.kv_heads);
  p.resize(static_cast<size_t>(args.causal ? std::min(args.kv_len, i + 1) : args.kv_len));
  const double* q = Row(args.q, args.q_strides, b, h, i);
  double max = -kInfinity;
  for (size_t j = 0; j < p.size(); ++j) {
    const auto key = static_cast<int64_t>(j);
    const double* k = Row(args.k, args.k_strides, b, g, key);
    double dot = 0;
    for (int64_t e = 0; e < args.head_dim; ++e)
      dot += q[e * args.q_strides[3]] * k[e * args.k_strides[3]];
    p[j] = dot * args.scale;
    if (args.bias != nullptr) {
      const auto& s = args.bias_strides;
      const double bias = Bias(args, b * s[0] + h * s[1] + i * s[2] + key * s[3]);
      p[j] = args.bias_dtype == DType::kBool && bias != 0 ? -kInfinity : p[j] + bias;
    }
    max = std::max(max, p[j]);
  }
  const double shift = max == -kInfinity ? 0 : max;
  double total = 0;
  for (double& score : p) total += score = std::exp(score - shift);
  for (double& score : p) score = total == 0 ? 0 : score / total;
  return max + std::log(total);
}

// 1 / (1 - dropout) for keys that are kept, 0 for the others.
void KeepFactors(const AttentionArgs& args, int64_t b, int64_t h, int64_t i,
                 std::vector<double>& factors) {
  if (args.dropout == 0) return std::fill(factors.begin(), factors.end(), 1.0);
  std::vector<float> keep(factors.size() + 4 * kPhiloxLanes);
  KeepRow(DescribeDropout(args, b, h, i, 0), 0, static_cast<int64_t>(factors.size()), keep.data());
  for (size_t j = 0; j < factors.size(); ++j)
    factors[j] = static_cast<double>(keep[j]) * KeepScale(args);
}

void AttendRow(const AttentionArgs& args, int64_t b, int64_t h, int64_t i) {
  const int64_t g = h / (args.heads / args.kv_heads);
  std::vector<double> p;
  const double lse = Probabilities(args, b, h, i, p);
  std::vector<double> factors(p.size());
  KeepFactors(args, b, h, i, factors);
  double* out = Row(args.out, args.out_strides, b, h, i);
  for (int64_t e = 0; e < args.v_dim; ++e) {
    double sum = 0;
    for (size_t j = 0; j < p.size(); ++j) {
      const double* v = Row(args.v, args.v_strides, b, g, static_cast<int64_t>(j));
      sum += p[j] * factors[j] * v[e * args.v_strides[3]];
    }
    out[e * args.out_strides[3]] = sum;
  }
  if (args.lse != nullptr) {
    args.lse[b * args.lse_strides[0] + h * args.lse_strides[1] + i * args.lse_strides[2]] =
        static_cast<float>(lse);
  }
}

// to[e] += factor * from[e]
void AddScaled(double* to, int64_t to_stride, double factor, const double* from,
               int64_t from_stride, int64_t count) {
  if (to == nullptr) return;
  for (int64_t e = 0; e < count; ++e) to[e * to_stride] += factor * from[e * from_stride];
}

void Clear(double* to, int64_t stride, int64_t count) {
  for (int64_t e = 0; to != nullptr && e < count; ++e) to[e * stride] = 0;
}

// One query's part of the gradients.
void AddGradients(const AttentionGradArgs& args, int64_t b, int64_t h, int64_t i,
                  std::vector<double>& p, std::vector<double>& factors) {
  const AttentionArgs& f = args.forward;
  const int64_t g = h / (f.heads / f.kv_heads);
  Probabilities(f, b, h, i, p);
  factors.resize(p.size());
  KeepFactors(f, b, h, i, factors);
  const double* grad = Row(args.grad, args.grad_strides, b, h, i);
  const double* out = Row(static_cast<const void*>(f.out), f.out_strides, b, h, i);
  double delta = 0;
  for (int64_t e = 0; e < f.v_dim; ++e)
    delta += grad[e * args.grad_strides[3]] * out[e * f.out_strides[3]];
  double* dq = args.dq == nullptr ? nullptr : Row(args.dq, args.dq_strides, b, h, i);
  Clear(dq, args.dq_strides[3], f.head_dim);
  for (size_t j = 0; j < p.size(); ++j) {
    const auto key = static_cast<int64_t>(j);
    const double* v = Row(f.v, f.v_strides, b, g, key);
    double dp = 0;
    for (int64_t e = 0; e < f.v_dim; ++e)
      dp += grad[e * args.grad_strides[3]] * v[e * f.v_strides[3]];
    const double ds = p[j] * (dp * factors[j] - delta) * f.scale;
    double* dk = args.dk == nullptr ? nullptr : Row(args.dk, args.dk_strides, b, g, key);
    double* dv = args.dv == nullptr ? nullptr : Row(args.dv, args.dv_strides, b, g, key);
    AddScaled(dq, args.dq_strides[3], ds, Row(f.k, f.k_strides, b, g, key), f.k_strides[3],
              f.head_dim);
    AddScaled(dk, args.dk_strides[3], ds, Row(f.q, f.q_strides, b, h, i), f.q_strides[3],
              f.head_dim);
    AddScaled(dv, args.dv_strides[3], p[j] * factors[j], grad, args.grad_strides[3], f.v_dim);
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

void AttentionGradF64(const AttentionGradArgs& args, bool parallel) {
  const AttentionArgs& f = args.forward;
  const auto group = [&](int64_t task) {
    const int64_t b = task / f.kv_heads, g = task % f.kv_heads;
    for (int64_t j = 0; j < f.kv_len; ++j) {
      if (args.dk != nullptr)
        Clear(Row(args.dk, args.dk_strides, b, g, j), args.dk_strides[3], f.head_dim);
      if (args.dv != nullptr)
        Clear(Row(args.dv, args.dv_strides, b, g, j), args.dv_strides[3], f.v_dim);
    }
    const int64_t heads = f.heads / f.kv_heads;
    std::vector<double> p, factors;
    for (int64_t h = g * heads; h < (g + 1) * heads; ++h) {
      for (int64_t i = 0; i < f.q_len; ++i) AddGradients(args, b, h, i, p, factors);
    }
  };
  const int64_t tasks = f.batch * f.kv_heads;
  if (parallel) return ThreadPool::Get().ParallelFor(tasks, group);
  for (int64_t i = 0; i < tasks; ++i) group(i);
}

}  // namespace neuron::kernels
