// Gradients of normalisations, and batch normalisation, whose statistics are kept between calls.
#include <numeric>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Op* Compute(Context& c, Op* x) { return c.b.Convert(x, ComputeType(x->type.dtype)); }

Dims Range(int64_t begin, int64_t end) {
  Dims dims(static_cast<size_t>(end - begin));
  std::iota(dims.begin(), dims.end(), begin);
  return dims;
}

// dims of x with size 1 at `dims`.
Dims Ones(const Op* x, const Dims& dims) {
  Dims out = x->type.dims;
  for (int64_t d : dims) out[static_cast<size_t>(d)] = 1;
  return out;
}

Op* Mean(Context& c, Op* x, const Dims& dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= x->type.dims[static_cast<size_t>(d)];
  return c.b.Div(c.b.Reduce(x, "add", dims, true), c.b.Shape(x->type.dtype, count));
}

// Of y = normalized * weight + bias, where normalized = (x - mean) * rstd over `dims`. Statistics
// and weight have x's rank and compute type; weight may be null. Without statistics that depend on
// x (`fixed`), the gradient is the scaled one.
struct Gradient {
  Op* grad;        // of y
  Op* normalized;  // of x's shape
  Op* rstd;
};

Op* InputGradient(Context& c, const Gradient& g, Op* weight, const Dims& dims, bool fixed) {
  auto& b = c.b;
  Op* scaled = weight != nullptr ? b.Mul(g.grad, weight) : g.grad;
  if (fixed) return b.Mul(scaled, g.rstd);
  Op* along = b.Mul(g.normalized, Mean(c, b.Mul(scaled, g.normalized), dims));
  return b.Mul(b.Sub(b.Sub(scaled, Mean(c, scaled, dims)), along), g.rstd);
}

// Result i: the gradient's sum over `dims`, or null if nobody wants it.
Op* Summed(Context& c, Op* x, const Dims& dims, size_t i) {
  if (!c.Wants(i)) return nullptr;
  return c.b.Reshape(c.b.Convert(c.b.Reduce(x, "add", dims), c.Result(i).dtype), c.Result(i).dims);
}

void LowerLayerNormGradient(Context& c) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("input"));
  const DType dtype = x->type.dtype;
  const auto n = static_cast<int64_t>(c.Ints("normalized_shape").size());
  const Dims inner = Range(x->type.rank() - n, x->type.rank());
  const Dims outer = Range(0, x->type.rank() - n);
  const auto stat = [&](const char* name) {
    return b.Convert(b.Reshape(c.T(name), Ones(x, inner)), dtype);
  };
  Op* rstd = stat("rstd");
  Op* grad = b.Convert(c.T("grad_out"), dtype);
  const Gradient g{grad, b.Mul(b.Sub(x, stat("mean")), rstd), rstd};
  Op* weight = c.OptionalT("weight");
  if (weight != nullptr) weight = b.Convert(weight, dtype);
  c.Return({c.Wants(0) ? InputGradient(c, g, weight, inner, false) : nullptr,
            Summed(c, b.Mul(grad, g.normalized), outer, 1), Summed(c, grad, outer, 2)});
}

void LowerRmsNormGradient(Context& c) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("input"));
  const DType dtype = x->type.dtype;
  const auto n = static_cast<int64_t>(c.Ints("normalized_shape").size());
  const Dims inner = Range(x->type.rank() - n, x->type.rank());
  Op* rstd = b.Convert(b.Reshape(c.T("rstd"), Ones(x, inner)), dtype);
  Op* grad = b.Convert(c.T("grad_out"), dtype);
  Op* normalized = b.Mul(x, rstd);
  Op* scaled = grad;
  if (Op* weight = c.OptionalT("weight")) scaled = b.Mul(grad, b.Convert(weight, dtype));
  Op* along = b.Mul(normalized, Mean(c, b.Mul(scaled, normalized), inner));
  c.Return({b.Mul(b.Sub(scaled, along), rstd),
            Summed(c, b.Mul(grad, normalized), Range(0, x->type.rank() - n), 1)});
}

// [N, C, ...] as [N, groups, C / groups, ...]: a view whatever the memory format.
void LowerGroupNormGradient(Context& c) {
  auto& b = c.b;
  const int64_t groups = c.Int("group"), channels = c.Int("C");
  Op* input = c.T("input");
  Dims grouped = input->type.dims;
  grouped[1] = channels / groups;
  grouped.insert(grouped.begin() + 1, groups);
  Op* x = Compute(c, b.Reshape(input, grouped));
  const DType dtype = x->type.dtype;
  const Dims dims = Range(2, x->type.rank());
  const auto stat = [&](const char* name) {
    return b.Convert(b.Reshape(c.T(name), Ones(x, dims)), dtype);
  };
  Op* rstd = stat("rstd");
  Op* grad = b.Convert(b.Reshape(c.T("grad_out"), grouped), dtype);
  const Gradient g{grad, b.Mul(b.Sub(x, stat("mean")), rstd), rstd};
  Op* weight = c.OptionalT("weight");
  if (weight != nullptr) {
    Op* split = b.Reshape(b.Convert(weight, dtype), {groups, channels / groups});
    weight = b.BroadcastInDim(split, grouped, {1, 2});
  }
  Op* x_grad = nullptr;
  if (c.Wants(0)) {
    x_grad = b.Convert(InputGradient(c, g, weight, dims, false), c.Result(0).dtype);
    x_grad = b.Reshape(x_grad, c.Result(0).dims);
  }
  Dims summed = Range(2, x->type.rank());
  summed[0] = 0;  // all but the channels, dimensions 1 and 2
  c.Return({x_grad, Summed(c, b.Mul(grad, g.normalized), summed, 1), Summed(c, grad, summed, 2)});
}

// All dimensions but the channels.
Dims BatchDims(const Op* x) {
  Dims dims = Range(1, x->type.rank());
  dims[0] = 0;
  return dims;
}

Op* PerChannel(Context& c, Op* value, const Op* x) {
  return c.b.Reshape(c.b.Convert(value, x->type.dtype), Ones(x, BatchDims(x)));
}

Op* InverseDeviation(Context& c, Op* variance) {
  return c.b.Unary(OpCode::kRsqrt, c.b.Add(variance, c.S("eps", variance->type.dtype)));
}

Op* BatchNormResult(Context& c, Op* centered, Op* rstd) {
  auto& b = c.b;
  Op* y = b.Mul(centered, rstd);
  if (Op* weight = c.OptionalT("weight")) y = b.Mul(y, PerChannel(c, weight, centered));
  if (Op* bias = c.OptionalT("bias")) y = b.Add(y, PerChannel(c, bias, centered));
  return y;
}

// By the batch's own statistics: the normalised batch, its mean and inverse deviation; with
// `update` also the running statistics, moved towards the batch's mean and unbiased variance by
// `momentum`.
std::vector<Op*> NormalizeBatch(Context& c, bool update) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("input"));
  const DType dtype = x->type.dtype;
  const Dims dims = BatchDims(x);
  Op* mean = Mean(c, x, dims);
  Op* centered = b.Sub(x, mean);
  Op* variance = Mean(c, b.Mul(centered, centered), dims);
  Op* rstd = InverseDeviation(c, variance);
  const Dims channels{x->type.dims[1]};
  std::vector<Op*> results{BatchNormResult(c, centered, rstd), b.Reshape(mean, channels),
                           b.Reshape(rstd, channels)};
  if (!update) return results;
  const int64_t count = x->type.NumElements() / channels[0];
  Op* unbiased = b.Mul(variance, b.Div(b.Shape(dtype, count), b.Shape(dtype, count - 1)));
  const auto moved = [&](const char* name, Op* batch) {
    Op* running = b.Convert(c.T(name), dtype);
    Op* momentum = c.S("momentum", dtype);
    Op* kept = b.Mul(running, b.Sub(b.Const(dtype, 1), momentum));
    return b.Add(kept, b.Mul(b.Reshape(batch, channels), momentum));
  };
  results.push_back(moved("running_mean", mean));
  results.push_back(moved("running_var", unbiased));
  return results;
}

template <bool kUpdate>
void LowerBatchNorm(Context& c) {
  c.Return(NormalizeBatch(c, kUpdate));
}

// By statistics that are given: the normalised batch, the mean and the inverse deviation.
std::vector<Op*> NormalizeFixed(Context& c) {
  Op* x = Compute(c, c.T("input"));
  Op* mean = PerChannel(c, c.T("running_mean"), x);
  Op* rstd = InverseDeviation(c, PerChannel(c, c.T("running_var"), x));
  return {BatchNormResult(c, c.b.Sub(x, mean), rstd), mean, rstd};
}

void LowerBatchNormFixed(Context& c) { c.Return({NormalizeFixed(c)[0]}); }

// PyTorch's functional forms, for graphs: three results, or five with the new running statistics.
// Without training the saved statistics, which no gradient needs, are empty on some devices.
void LowerBatchNormFunctional(Context& c) {
  auto& b = c.b;
  const bool update = c.num_results() > 3;
  const bool may_train = c.op() != "_native_batch_norm_legit_no_training";
  if (may_train && c.Bool("training")) return c.Return(NormalizeBatch(c, update));
  std::vector<Op*> results = NormalizeFixed(c);
  for (size_t i = 1; i < 3; ++i) {
    const ir::Type& type = c.Result(i);
    Op* zero = b.Const(results[i]->type.dtype, 0);
    results[i] =
        type.NumElements() == 0 ? b.Broadcast(zero, type.dims) : b.Reshape(results[i], type.dims);
  }
  if (update) {
    results.push_back(c.T("running_mean"));
    results.push_back(c.T("running_var"));
  }
  c.Return(std::move(results));
}

void LowerBatchNormGradient(Context& c) {
  auto& b = c.b;
  Op* x = Compute(c, c.T("input"));
  const bool train = c.Bool("train");
  const Dims dims = BatchDims(x);
  Op* mean = PerChannel(c, c.T(train ? "save_mean" : "running_mean"), x);
  Op* rstd = train ? PerChannel(c, c.T("save_invstd"), x)
                   : InverseDeviation(c, PerChannel(c, c.T("running_var"), x));
  Op* grad = b.Convert(c.T("grad_out"), x->type.dtype);
  const Gradient g{grad, b.Mul(b.Sub(x, mean), rstd), rstd};
  Op* weight = c.OptionalT("weight");
  if (weight != nullptr) weight = PerChannel(c, weight, x);
  c.Return({c.Wants(0) ? InputGradient(c, g, weight, dims, !train) : nullptr,
            Summed(c, b.Mul(grad, g.normalized), dims, 1), Summed(c, grad, dims, 2)});
}

}  // namespace

void AddNormGradients(Table& t) {
  t.Add("native_layer_norm_backward", LowerLayerNormGradient);
  t.Add("native_group_norm_backward", LowerGroupNormGradient);
  t.Add("_fused_rms_norm_backward", LowerRmsNormGradient);
  t.Add("neuron::batch_norm", LowerBatchNorm<false>);
  t.Add("neuron::batch_norm_update", LowerBatchNorm<true>);
  t.Add("neuron::batch_norm_fixed", LowerBatchNormFixed);
  for (const char* name :
       {"_native_batch_norm_legit_functional", "_native_batch_norm_legit.no_stats",
        "_native_batch_norm_legit_no_training"})
    t.Add(name, LowerBatchNormFunctional).graph_only = true;
  t.Add("native_batch_norm_backward", LowerBatchNormGradient);
}

}  // namespace neuron::lowering
