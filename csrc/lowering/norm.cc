// Normalisations and softmax: statistics and result in one pass structure, which the planner keeps
// in one kernel per row.
#include <numeric>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

struct Moments {
  Op* mean;      // dims kept as 1
  Op* rstd;      // 1 / sqrt(variance + eps)
  Op* centered;  // x - mean
};

Moments ComputeMoments(Context& c, Op* x, const Dims& dims, Op* eps) {
  auto& b = c.b;
  int64_t count = 1;
  for (int64_t d : dims) count *= x->type.dims[d];
  Op* n = b.Shape(x->type.dtype, count);
  Moments m;
  m.mean = b.Div(b.Reduce(x, "add", dims, true), n);
  m.centered = b.Sub(x, m.mean);
  Op* variance = b.Div(b.Reduce(b.Mul(m.centered, m.centered), "add", dims, true), n);
  m.rstd = b.Unary(OpCode::kRsqrt, b.Add(variance, eps));
  return m;
}

Op* Compute(Context& c, Op* x) { return c.b.Convert(x, ComputeType(x->type.dtype)); }

Op* Stat(Context& c, Op* x, size_t result) {
  return c.b.Reshape(c.b.Convert(x, c.Result(result).dtype), c.Result(result).dims);
}

void LowerLayerNorm(Context& c) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("input"));
  const auto n = static_cast<int64_t>(c.Ints("normalized_shape").size());
  Dims dims(n);
  std::iota(dims.begin(), dims.end(), x->type.rank() - n);
  const Moments m = ComputeMoments(c, x, dims, c.S("eps", x->type.dtype));
  Op* y = b.Mul(m.centered, m.rstd);
  if (Op* weight = c.OptionalT("weight")) y = b.Mul(y, b.Convert(weight, y->type.dtype));
  if (Op* bias = c.OptionalT("bias")) y = b.Add(y, b.Convert(bias, y->type.dtype));
  c.Return({y, Stat(c, m.mean, 1), Stat(c, m.rstd, 2)});
}

// [N, C, ...] as [N, groups, C / groups, ...]: a view whatever the memory format.
void LowerGroupNorm(Context& c) {
  auto& b = c.b;
  const int64_t groups = c.Int("group");
  Op* input = c.T("input");
  Dims grouped = input->type.dims;
  const int64_t per_group = c.Int("C") / groups;
  grouped[1] = per_group;
  grouped.insert(grouped.begin() + 1, groups);
  Op* x = Compute(c, b.Reshape(input, grouped));
  Dims dims(grouped.size() - 2);
  std::iota(dims.begin(), dims.end(), 2);
  const Moments m = ComputeMoments(c, x, dims, c.S("eps", x->type.dtype));
  Op* y = b.Mul(m.centered, m.rstd);
  const auto per_channel = [&](Op* affine) {
    Op* split = b.Reshape(b.Convert(affine, y->type.dtype), {groups, per_group});
    return b.BroadcastInDim(split, grouped, {1, 2});
  };
  if (Op* weight = c.OptionalT("weight")) y = b.Mul(y, per_channel(weight));
  if (Op* bias = c.OptionalT("bias")) y = b.Add(y, per_channel(bias));
  y = b.Reshape(b.Convert(y, c.Result().dtype), c.Result().dims);
  c.Return({y, Stat(c, m.mean, 1), Stat(c, m.rstd, 2)});
}

void LowerSoftmax(Context& c) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("self"));
  if (x->type.dims.empty())
    return c.Return({b.Div(b.Unary(OpCode::kExp, b.Sub(x, x)), b.Const(x->type.dtype, 1))});
  const Dims dims{WrapDim(c.Int("dim"), x->type.rank())};
  Op* e = b.Unary(OpCode::kExp, b.Sub(x, b.Reduce(x, "maximum", dims, true)));
  c.Return({b.Div(e, b.Reduce(e, "add", dims, true))});
}

// Rows that are -inf throughout give 0 instead of NaN.
void LowerSafeSoftmax(Context& c) {
  auto& b = c.b;
  Op* x = c.T("self");
  if (c.Has("dtype")) x = b.Convert(x, c.Result().dtype);
  x = Compute(c, x);
  if (x->type.dims.empty()) x = b.Reshape(x, {1});
  const Dims dims{WrapDim(c.Int("dim"), x->type.rank())};
  Op* maximum = b.Reduce(x, "maximum", dims, true);
  Op* e = b.Unary(OpCode::kExp, b.Sub(x, maximum));
  Op* y = b.Div(e, b.Reduce(e, "add", dims, true));
  Op* empty = b.Compare("EQ", maximum, b.Limit(x->type.dtype, false));
  y = b.Select(empty, b.Const(x->type.dtype, 0), y);
  c.Return({b.Reshape(b.Convert(y, c.Result().dtype), c.Result().dims)});
}

void LowerLogSoftmax(Context& c) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("self"));
  if (x->type.dims.empty()) return c.Return({b.Sub(x, x)});
  const Dims dims{WrapDim(c.Int("dim"), x->type.rank())};
  Op* shifted = b.Sub(x, b.Reduce(x, "maximum", dims, true));
  Op* sum = b.Reduce(b.Unary(OpCode::kExp, shifted), "add", dims, true);
  c.Return({b.Sub(shifted, b.Unary(OpCode::kLog, sum))});
}

void LowerSoftmaxGradient(Context& c) {
  auto& b = c.b;
  Op* grad = Compute(c, c.T("grad_output"));
  Op* y = b.Convert(c.T("output"), grad->type.dtype);
  Dims dims;
  if (!y->type.dims.empty()) dims.push_back(WrapDim(c.Int("dim"), y->type.rank()));
  Op* product = b.Mul(grad, y);
  c.Return({b.Sub(product, b.Mul(y, b.Reduce(product, "add", dims, true)))});
}

void LowerLogSoftmaxGradient(Context& c) {
  auto& b = c.b;
  Op* grad = Compute(c, c.T("grad_output"));
  Op* y = b.Convert(c.T("output"), grad->type.dtype);
  Dims dims;
  if (!y->type.dims.empty()) dims.push_back(WrapDim(c.Int("dim"), y->type.rank()));
  c.Return({b.Sub(grad, b.Mul(b.Unary(OpCode::kExp, y), b.Reduce(grad, "add", dims, true)))});
}

}  // namespace

void AddNorms(Table& t) {
  t.Add("native_layer_norm", LowerLayerNorm);
  t.Add("native_group_norm", LowerGroupNorm);
  t.Add("_softmax", LowerSoftmax);
  t.Add("_safe_softmax", LowerSafeSoftmax);
  t.Add("_log_softmax", LowerLogSoftmax);
  t.Add("_softmax_backward_data", LowerSoftmaxGradient);
  t.Add("_log_softmax_backward_data", LowerLogSoftmaxGradient);
}

}  // namespace neuron::lowering
