// Activation functions and their gradients.
#include <cmath>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

// A function of one float tensor, computed in its compute type.
template <Op* (*kFunction)(Context&, Op*)>
void LowerFunction(Context& c) {
  const DType dtype = c.T("self")->type.dtype;
  c.Return({c.b.Convert(kFunction(c, c.b.Convert(c.T("self"), ComputeType(dtype))), dtype)});
}

// A gradient: a function of the incoming gradient and of the saved input or output.
template <Op* (*kFunction)(Context&, Op*, Op*)>
void LowerGradient(Context& c, const char* saved) {
  const DType dtype =
      ResultType(c.default_float()).Add(c.Tensor("grad_output")).Add(c.Tensor(saved)).Get();
  Op* result =
      kFunction(c, ToCompute(c, c.T("grad_output"), dtype), ToCompute(c, c.T(saved), dtype));
  c.Return({c.b.Convert(result, dtype)});
}

Op* Sigmoid(Context& c, Op* x) { return c.b.Unary(OpCode::kLogistic, x); }

Op* Relu(Context& c, Op* x) { return c.b.Max(x, c.b.Const(x->type.dtype, 0)); }

// x / (1 + exp(-x)), which is what PyTorch evaluates.
Op* Silu(Context& c, Op* x) {
  auto& b = c.b;
  Op* one = b.Const(x->type.dtype, 1);
  return b.Div(x, b.Add(b.Unary(OpCode::kExp, b.Unary(OpCode::kNegate, x)), one));
}

Op* SiluGradient(Context& c, Op* grad, Op* x) {
  auto& b = c.b;
  Op* s = Sigmoid(c, x);
  Op* one = b.Const(x->type.dtype, 1);
  return b.Mul(b.Mul(grad, s), b.Add(one, b.Mul(x, b.Sub(one, s))));
}

bool IsTanhGelu(Context& c) {
  const std::string approximate = c.String("approximate");
  if (approximate != "none" && approximate != "tanh") {
    NEURON_THROW(kInvalidArgument, "approximate argument must be either none or tanh, not '",
                 approximate, "'");
  }
  return approximate == "tanh";
}

constexpr double kGeluCubic =
    0.044715;  // D. Hendrycks, K. Gimpel, "Gaussian error linear units", 2016
const double kSqrt2OverPi = std::sqrt(2.0 / M_PI);

Op* Gelu(Context& c, Op* x) {
  auto& b = c.b;
  if (IsTanhGelu(c)) {
    Op* cube = b.Mul(b.Mul(x, x), x);
    Op* inner = b.Mul(b.Add(x, b.Mul(cube, kGeluCubic)), kSqrt2OverPi);
    return b.Mul(b.Mul(x, 0.5), b.Add(b.Unary(OpCode::kTanh, inner), 1));
  }
  Op* cdf = b.Add(b.Unary(OpCode::kErf, b.Mul(x, M_SQRT1_2)), 1);
  return b.Mul(b.Mul(x, 0.5), cdf);
}

Op* GeluGradient(Context& c, Op* grad, Op* x) {
  auto& b = c.b;
  if (IsTanhGelu(c)) {
    Op* square = b.Mul(x, x);
    Op* inner = b.Mul(b.Add(x, b.Mul(b.Mul(square, x), kGeluCubic)), kSqrt2OverPi);
    Op* tanh = b.Unary(OpCode::kTanh, inner);
    Op* left = b.Mul(b.Add(tanh, 1), 0.5);
    Op* slope = b.Mul(b.Add(b.Mul(square, 3 * kGeluCubic), 1), kSqrt2OverPi);
    Op* sech2 = b.Sub(b.Const(x->type.dtype, 1), b.Mul(tanh, tanh));
    return b.Mul(grad, b.Add(left, b.Mul(b.Mul(b.Mul(x, 0.5), sech2), slope)));
  }
  Op* cdf = b.Mul(b.Add(b.Unary(OpCode::kErf, b.Mul(x, M_SQRT1_2)), 1), 0.5);
  Op* pdf = b.Mul(b.Unary(OpCode::kExp, b.Mul(b.Mul(x, x), -0.5)), 0.5 * M_SQRT1_2 * M_2_SQRTPI);
  return b.Mul(grad, b.Add(cdf, b.Mul(x, pdf)));
}

Op* SigmoidGradient(Context& c, Op* grad, Op* y) {
  return c.b.Mul(grad, c.b.Mul(c.b.Sub(c.b.Const(y->type.dtype, 1), y), y));
}

Op* TanhGradient(Context& c, Op* grad, Op* y) {
  return c.b.Mul(grad, c.b.Sub(c.b.Const(y->type.dtype, 1), c.b.Mul(y, y)));
}

Op* ThresholdGradient(Context& c, Op* grad, Op* x) {
  auto& b = c.b;
  Op* zero = b.Const(grad->type.dtype, 0);
  return b.Select(b.Compare("LE", x, c.S("threshold", x->type.dtype)), zero, grad);
}

Op* Mish(Context& c, Op* x) {
  auto& b = c.b;
  return b.Mul(x, b.Unary(OpCode::kTanh, b.Unary(OpCode::kLog1p, b.Unary(OpCode::kExp, x))));
}

Op* LeakyRelu(Context& c, Op* x) {
  auto& b = c.b;
  Op* positive = b.Compare("GT", x, b.Const(x->type.dtype, 0));
  return b.Select(positive, x, b.Mul(x, c.S("negative_slope", x->type.dtype)));
}

Op* Softplus(Context& c, Op* x) {
  auto& b = c.b;
  Op* beta = c.S("beta", x->type.dtype);
  Op* scaled = b.Mul(x, beta);
  Op* soft = b.Div(b.Unary(OpCode::kLog1p, b.Unary(OpCode::kExp, scaled)), beta);
  return b.Select(b.Compare("GT", scaled, c.S("threshold", x->type.dtype)), x, soft);
}

void LowerSiluGradient(Context& c) { LowerGradient<SiluGradient>(c, "self"); }
void LowerGeluGradient(Context& c) { LowerGradient<GeluGradient>(c, "self"); }
void LowerSigmoidGradient(Context& c) { LowerGradient<SigmoidGradient>(c, "output"); }
void LowerTanhGradient(Context& c) { LowerGradient<TanhGradient>(c, "output"); }
void LowerThresholdGradient(Context& c) { LowerGradient<ThresholdGradient>(c, "self"); }

}  // namespace

void AddActivations(Table& t) {
  t.Add("relu", LowerFunction<Relu>);
  t.Add("silu", LowerFunction<Silu>);
  t.Add("gelu", LowerFunction<Gelu>);
  t.Add("mish", LowerFunction<Mish>);
  t.Add("leaky_relu", LowerFunction<LeakyRelu>);
  t.Add("softplus", LowerFunction<Softplus>);
  t.Add("silu_backward", LowerSiluGradient);
  t.Add("gelu_backward", LowerGeluGradient);
  t.Add("sigmoid_backward", LowerSigmoidGradient);
  t.Add("tanh_backward", LowerTanhGradient);
  t.Add("threshold_backward", LowerThresholdGradient);
}

}  // namespace neuron::lowering
