// Negative log likelihood, and gradients of losses.
#include <numeric>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

enum Reduction : int64_t { kNone, kMean, kSum };  // as PyTorch numbers them

Dims AllDims(const Op* x) {
  Dims dims(x->type.dims.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// What the forward and the gradient share: classes stand in dimension 1, everything of rank >= 2.
struct Classes {
  Op* self;     // [N, C, ...]
  Op* target;   // i64 [N, 1, ...]; 0 where ignored
  Op* counted;  // b8 [N, 1, ...]: false where the target is ignore_index
  Op* weight;   // [C] or null
};

Classes Analyze(Context& c) {
  auto& b = c.b;
  Classes out;
  out.self = c.T("self");
  if (out.self->type.rank() == 1) out.self = b.Reshape(out.self, {1, out.self->type.dims[0]});
  Dims dims = out.self->type.dims;
  dims[1] = 1;
  Op* target = b.Reshape(b.Convert(c.T("target"), DType::kI64), dims);
  out.counted = b.Compare("NE", target, b.Shape(DType::kI64, c.Int("ignore_index")));
  out.target = b.Select(out.counted, target, b.ConstInt(DType::kI64, 0));
  out.weight = c.OptionalT("weight");
  return out;
}

// A target outside [0, C) fails the launch with an IndexError.
void LowerNllLoss(Context& c) {
  auto& b = c.b;
  const Classes k = Analyze(c);
  const DType dtype = ComputeType(k.self->type.dtype);
  Op* zero = b.Const(dtype, 0);
  Op* chosen = b.graph().Add(OpCode::kTakeAlong, {k.self->type.dtype, k.target->type.dims},
                             {k.self, k.target}, {{"dim", int64_t{1}}});
  Op* loss = b.Unary(OpCode::kNegate, b.Convert(chosen, dtype));
  Op* weight = b.Broadcast(b.Const(dtype, 1), loss->type.dims);
  if (k.weight != nullptr) {
    Op* taken = b.graph().Add(OpCode::kTake, {k.weight->type.dtype, k.target->type.dims},
                              {k.weight, k.target}, {{"dim", int64_t{0}}});
    weight = b.Convert(taken, dtype);
    loss = b.Mul(loss, weight);
  }
  loss = b.Select(k.counted, loss, zero);
  if (c.Int("reduction") == kNone && c.T("self")->type.rank() > 1)
    return c.Return({b.Reshape(b.Convert(loss, c.Result(0).dtype), c.Result(0).dims), zero});
  Op* total = b.Reduce(b.Select(k.counted, weight, zero), "add", AllDims(loss));
  Op* sum = b.Reduce(loss, "add", AllDims(loss));
  c.Return({c.Int("reduction") == kMean ? b.Div(sum, total) : sum, total});
}

// -weight[target] of the mean or sum at the target's place, 0 elsewhere.
void LowerNllLossGradient(Context& c) {
  auto& b = c.b;
  const Classes k = Analyze(c);
  const Dims& dims = k.self->type.dims;
  const DType dtype = ComputeType(k.self->type.dtype);
  Op* grad = b.Convert(c.T("grad_output"), dtype);
  if (!grad->type.dims.empty()) grad = b.Reshape(grad, k.target->type.dims);
  if (c.Int("reduction") == kMean) grad = b.Div(grad, b.Convert(c.T("total_weight"), dtype));
  grad = b.Broadcast(b.Unary(OpCode::kNegate, grad), dims);
  if (k.weight != nullptr)
    grad = b.Mul(grad, b.BroadcastInDim(b.Convert(k.weight, dtype), dims, {1}));
  Op* at = b.Compare("EQ", b.Iota(DType::kI64, dims, 1), k.target);
  Op* here = b.Binary(OpCode::kAnd, at, k.counted);
  Op* out = b.Select(here, grad, b.Const(dtype, 0));
  c.Return({b.Reshape(b.Convert(out, c.Result().dtype), c.Result().dims)});
}

using Slope = Op* (*)(Context&, Op* distance);

// Losses that are a function of self - target: grad_output * slope, of the mean divided by the
// number of elements.
template <Slope kSlope>
void LowerLossGradient(Context& c) {
  auto& b = c.b;
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("target")).Get();
  Op* self = ToCompute(c, c.T("self"), common);
  Op* slope = kSlope(c, b.Sub(self, ToCompute(c, c.T("target"), common)));
  Op* grad = b.Convert(c.T("grad_output"), slope->type.dtype);
  if (c.Int("reduction") == kMean)
    slope = b.Div(slope, b.Shape(slope->type.dtype, slope->type.NumElements()));
  c.Return({b.Mul(slope, grad)});
}

Op* MseSlope(Context& c, Op* distance) { return c.b.Mul(distance, 2); }

Op* SmoothL1Slope(Context& c, Op* distance) {
  auto& b = c.b;
  Op* beta = c.S("beta", distance->type.dtype);
  Op* near = b.Compare("LT", b.Unary(OpCode::kAbs, distance), beta);
  return b.Select(near, b.Div(distance, beta), b.Unary(OpCode::kSign, distance));
}

Op* HuberSlope(Context& c, Op* distance) {
  auto& b = c.b;
  Op* delta = c.S("delta", distance->type.dtype);
  Op* near = b.Compare("LE", b.Unary(OpCode::kAbs, distance), delta);
  return b.Select(near, distance, b.Mul(b.Unary(OpCode::kSign, distance), delta));
}

}  // namespace

void AddLosses(Table& t) {
  for (const std::string name : {"nll_loss", "nll_loss2d"}) {
    t.Add(name + "_forward", LowerNllLoss).aliases = {name + "_forward.output"};
    t.Add(name + "_backward", LowerNllLossGradient).aliases = {name + "_backward.grad_input"};
  }
  t.Add("mse_loss_backward", LowerLossGradient<MseSlope>).aliases = {
      "mse_loss_backward.grad_input"};
  t.Add("smooth_l1_loss_backward", LowerLossGradient<SmoothL1Slope>).aliases = {
      "smooth_l1_loss_backward.grad_input"};
  t.Add("huber_loss_backward", LowerLossGradient<HuberSlope>);
}

}  // namespace neuron::lowering
