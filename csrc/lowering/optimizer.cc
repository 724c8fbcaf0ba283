// One step of an optimizer for one parameter, and what a gradient scaler does: each is one pass
// over its tensors. Numbers that are the same for all elements are computed in f64, as PyTorch CPU
// does.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

constexpr DType kWide = DType::kF64;

class Step {
 public:
  explicit Step(Context& c) : c_(c), b(c.b), dtype(ComputeType(c.T("param")->type.dtype)) {}

  Op* Value(const char* name) { return b.Convert(c_.T(name), dtype); }
  Op* Number(const char* name) { return c_.S(name, dtype); }
  Op* Narrow(Op* number) { return b.Convert(number, dtype); }
  Op* LearningRate() { return b.Convert(c_.T("lr"), kWide); }
  Op* OneMinus(Op* x) { return b.Sub(b.Const(x->type.dtype, 1), x); }

  // Negated when the objective is maximised; with an L2 penalty where that is part of it.
  Op* Gradient(Op* penalised) {
    Op* grad = Value("grad");
    if (c_.Bool("maximize")) grad = b.Unary(OpCode::kNegate, grad);
    if (penalised != nullptr && !c_.Is("weight_decay", 0))
      grad = b.Add(grad, b.Mul(penalised, Number("weight_decay")));
    return grad;
  }

  // The new values, or the old ones of the arguments of these names if an infinity was found.
  void Return(const std::vector<const char*>& names, std::vector<Op*> values) {
    if (Op* found = c_.OptionalT("found_inf")) {
      Op* skip = b.Compare("EQ", found, b.Const(found->type.dtype, 1));
      for (size_t i = 0; i < values.size(); ++i) {
        Op* old = c_.T(names[i]);
        Op* value = b.Convert(values[i], old->type.dtype);
        values[i] = b.Select(b.Reshape(skip, {}), old, value);
      }
    }
    c_.Return(std::move(values));
  }

 private:
  Context& c_;

 public:
  Builder& b;
  const DType dtype;
};

// decoupled: AdamW's decay of the parameter itself.
template <bool kMaximum>
void LowerAdam(Context& c) {
  Step s(c);
  auto& b = s.b;
  Op* lr = s.LearningRate();
  Op* param = s.Value("param");
  const bool decoupled = c.Bool("decoupled");
  Op* grad = s.Gradient(decoupled ? nullptr : param);
  if (decoupled && !c.Is("weight_decay", 0)) {
    Op* kept = s.OneMinus(b.Mul(lr, c.S("weight_decay", kWide)));
    param = b.Mul(param, s.Narrow(kept));
  }
  Op* beta1 = c.S("beta1", kWide);
  Op* beta2 = c.S("beta2", kWide);
  Op* mean = s.Value("exp_avg");
  mean = b.Add(mean, b.Mul(b.Sub(grad, mean), s.Narrow(s.OneMinus(beta1))));
  Op* fresh = b.Mul(b.Mul(grad, grad), s.Narrow(s.OneMinus(beta2)));
  Op* square = b.Add(b.Mul(s.Value("exp_avg_sq"), s.Narrow(beta2)), fresh);
  Op* step = b.Reshape(b.Convert(c.T("step"), kWide), {});
  Op* correction1 = s.OneMinus(b.Binary(OpCode::kPower, beta1, step));
  Op* correction2 = s.OneMinus(b.Binary(OpCode::kPower, beta2, step));
  Op* largest = square;
  if constexpr (kMaximum) largest = b.Max(s.Value("max_exp_avg_sq"), square);
  Op* root = s.Narrow(b.Unary(OpCode::kSqrt, correction2));
  Op* divisor = b.Add(b.Div(b.Unary(OpCode::kSqrt, largest), root), s.Number("eps"));
  Op* size = s.Narrow(b.Div(lr, correction1));
  param = b.Sub(param, b.Div(b.Mul(mean, size), divisor));
  if constexpr (kMaximum) {
    s.Return({"param", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {param, mean, square, largest});
  } else {
    s.Return({"param", "exp_avg", "exp_avg_sq"}, {param, mean, square});
  }
}

void LowerSgd(Context& c) {
  Step s(c);
  Op* param = s.Value("param");
  Op* grad = s.Gradient(param);
  s.Return({"param"}, {s.b.Sub(param, s.b.Mul(grad, s.Narrow(s.LearningRate())))});
}

void LowerSgdMomentum(Context& c) {
  Step s(c);
  auto& b = s.b;
  Op* param = s.Value("param");
  Op* grad = s.Gradient(param);
  Op* buffer = grad;  // what it holds before the first step means nothing
  if (!c.Bool("is_first_step")) {
    Op* kept = b.Mul(s.Value("momentum_buffer"), s.Number("momentum"));
    Op* fresh = s.Narrow(s.OneMinus(c.S("dampening", kWide)));
    buffer = b.Add(kept, b.Mul(grad, fresh));
  }
  Op* direction = c.Bool("nesterov") ? b.Add(grad, b.Mul(buffer, s.Number("momentum"))) : buffer;
  param = b.Sub(param, b.Mul(direction, s.Narrow(s.LearningRate())));
  s.Return({"param", "momentum_buffer"}, {param, buffer});
}

void LowerAdagrad(Context& c) {
  Step s(c);
  auto& b = s.b;
  Op* param = s.Value("param");
  Op* grad = s.Gradient(param);
  Op* sum = b.Add(s.Value("state_sum"), b.Mul(grad, grad));
  Op* steps = b.Sub(b.Reshape(b.Convert(c.T("step"), kWide), {}), b.Const(kWide, 1));
  Op* decay = b.Add(b.Mul(steps, c.S("lr_decay", kWide)), 1);
  Op* rate = s.Narrow(b.Div(s.LearningRate(), decay));
  Op* divisor = b.Add(b.Unary(OpCode::kSqrt, sum), s.Number("eps"));
  param = b.Sub(param, b.Div(b.Mul(grad, rate), divisor));
  s.Return({"param", "state_sum"}, {param, sum});
}

// grad / grad_scale, unless an infinity was found.
void LowerUnscaleGradient(Context& c) {
  auto& b = c.b;
  Op* grad = c.T("grad");
  const DType dtype = ComputeType(grad->type.dtype);
  Op* scale = b.Reshape(b.Convert(c.T("grad_scale"), dtype), {});
  Op* unscaled = b.Convert(b.Div(b.Convert(grad, dtype), scale), grad->type.dtype);
  if (Op* found = c.OptionalT("found_inf")) {
    Op* skip = b.Compare("EQ", b.Reshape(found, {}), b.Const(found->type.dtype, 1));
    unscaled = b.Select(skip, grad, unscaled);
  }
  c.Return({unscaled});
}

// self * inv_scale; found_inf becomes 1 if any element was infinite or NaN.
void LowerUnscaleAndCheck(Context& c) {
  auto& b = c.b;
  Op* self = c.T("self");
  const DType dtype = ComputeType(self->type.dtype);
  Op* x = b.Convert(self, dtype);
  Op* finite = b.Compare("LT", b.Unary(OpCode::kAbs, x), b.Limit(dtype, true));
  Dims all;
  for (int64_t d = 0; d < x->type.rank(); ++d) all.push_back(d);
  Op* any = b.Reduce(b.Unary(OpCode::kNot, finite), "or", all);
  Op* found = c.T("found_inf");
  Op* one = b.Broadcast(b.Const(found->type.dtype, 1), found->type.dims);
  Op* scale = b.Reshape(b.Convert(c.T("inv_scale"), dtype), {});
  c.Return({b.Mul(x, scale), b.Select(b.Broadcast(any, found->type.dims), one, found)});
}

// Smaller after an infinity, larger after growth_interval steps without one (if it stays finite).
void LowerUpdateScale(Context& c) {
  auto& b = c.b;
  Op* scale = c.T("self");
  Op* tracker = c.T("growth_tracker");
  const DType dtype = scale->type.dtype, count = tracker->type.dtype;
  Op* found = b.Convert(c.T("found_inf"), DType::kBool);
  Op* steps = b.Add(tracker, b.ConstInt(count, 1));
  Op* due =
      b.Compare("EQ", steps, b.Convert(b.Shape(DType::kI64, c.Int("growth_interval")), count));
  Op* grown = b.Convert(b.Mul(b.Convert(scale, kWide), c.S("scale_growth_factor", kWide)), dtype);
  Op* fits = b.Compare("LT", b.Unary(OpCode::kAbs, grown), b.Limit(dtype, true));
  Op* shrunk = b.Convert(b.Mul(b.Convert(scale, kWide), c.S("scale_backoff_factor", kWide)), dtype);
  Op* without = b.Select(b.Binary(OpCode::kAnd, due, fits), grown, scale);
  Op* reset = b.Binary(OpCode::kOr, found, due);
  c.Return({b.Select(found, shrunk, without), b.Select(reset, b.ConstInt(count, 0), steps)});
}

}  // namespace

void AddOptimizers(Table& t) {
  t.Add("neuron::adam_", LowerAdam<false>);
  t.Add("neuron::adam_.amsgrad", LowerAdam<true>);
  t.Add("neuron::sgd_", LowerSgd);
  t.Add("neuron::sgd_.momentum", LowerSgdMomentum);
  t.Add("neuron::adagrad_", LowerAdagrad);
  t.Add("neuron::unscale_gradient_", LowerUnscaleGradient);
  t.Add("neuron::unscale_and_check_", LowerUnscaleAndCheck);
  t.Add("neuron::update_scale_", LowerUpdateScale);
}

}  // namespace neuron::lowering
