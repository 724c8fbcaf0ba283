// Random numbers: PyTorch's own checks of their arguments, then the lowered ops; and what is
// composed of them.
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <torch/library.h>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

using Generator = std::optional<at::Generator>;
namespace templates = at::native::templates;

void Call(OpKernel& kernel, torch::jit::Stack stack) { kernel.Run(&stack); }

// What the templates call after their checks. Their parameter is the generator's class on CPU and
// CUDA.
template <typename>
struct UniformKernel {
  void operator()(at::TensorIteratorBase& iter, double from, double to, const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::uniform_");
    Call(kernel, {iter.tensor(0), from, to, g});
  }
};
template <typename>
struct NormalKernel {
  void operator()(const at::Tensor& self, double mean, double std, const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::normal_");
    Call(kernel, {self, mean, std, g});
  }
};
template <typename>
struct LogNormalKernel {
  void operator()(at::TensorIteratorBase& iter, double mean, double std, const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::log_normal_");
    Call(kernel, {iter.tensor(0), mean, std, g});
  }
};
template <typename>
struct CauchyKernel {
  void operator()(at::TensorIteratorBase& iter, double median, double sigma,
                  const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::cauchy_");
    Call(kernel, {iter.tensor(0), median, sigma, g});
  }
};
template <typename>
struct ExponentialKernel {
  void operator()(at::TensorIteratorBase& iter, double lambda, const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::exponential_");
    Call(kernel, {iter.tensor(0), lambda, g});
  }
};
template <typename>
struct GeometricKernel {
  void operator()(at::TensorIteratorBase& iter, double p, const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::geometric_");
    Call(kernel, {iter.tensor(0), p, g});
  }
};
template <typename>
struct BernoulliKernel {
  void operator()(const at::Tensor& self, double p, const Generator& g) const {
    static OpKernel& kernel = GetOpKernel("aten::bernoulli_.float");
    Call(kernel, {self, p, g});
  }
};

void Integers(const at::Tensor& self, int64_t base, uint64_t range, const Generator& g) {
  static OpKernel& kernel = GetOpKernel("neuron::integers_");
  Call(kernel, {self, base, static_cast<int64_t>(range), g});
}

// How many numbers random_() without bounds draws from, from 0 on: all of an integer type that are
// not negative; all integers that a float type holds exactly.
uint64_t NaturalRange(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return 2;
    case c10::ScalarType::Half:
      return (uint64_t{1} << 11) + 1;
    case c10::ScalarType::BFloat16:
      return (uint64_t{1} << 8) + 1;
    case c10::ScalarType::Float:
      return (uint64_t{1} << 24) + 1;
    case c10::ScalarType::Double:
      return (uint64_t{1} << 53) + 1;
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(type, false), "random_ of ", type);
      return c10::isSignedType(type)      ? uint64_t{1} << (8 * c10::elementSize(type) - 1)
             : c10::elementSize(type) < 8 ? uint64_t{1} << (8 * c10::elementSize(type))
                                          : 0;
  }
}

template <typename>
struct IntegerKernel {
  void operator()(at::TensorIteratorBase& iter, uint64_t range, int64_t base,
                  const Generator& g) const {
    Integers(iter.tensor(0), base, range, g);
  }
  void operator()(at::TensorIteratorBase& iter, const Generator& g) const {  // all of int64
    Integers(iter.tensor(0), 0, 0, g);
  }
};

at::Tensor& Uniform(at::Tensor& self, double from, double to, Generator g) {
  return templates::uniform_impl_<UniformKernel, void>(self, from, to, std::move(g));
}
at::Tensor& Normal(at::Tensor& self, double mean, double std, Generator g) {
  return templates::normal_impl_<NormalKernel, void>(self, mean, std, std::move(g));
}
at::Tensor& LogNormal(at::Tensor& self, double mean, double std, Generator g) {
  return templates::log_normal_impl_<LogNormalKernel, void>(self, mean, std, std::move(g));
}
at::Tensor& Cauchy(at::Tensor& self, double median, double sigma, Generator g) {
  return templates::cauchy_impl_<CauchyKernel, void>(self, median, sigma, std::move(g));
}
at::Tensor& Exponential(at::Tensor& self, double lambda, Generator g) {
  return templates::exponential_impl_<ExponentialKernel, void>(self, lambda, std::move(g));
}
at::Tensor& Geometric(at::Tensor& self, double p, Generator g) {
  return templates::geometric_impl_<GeometricKernel, void>(self, p, std::move(g));
}
at::Tensor& Bernoulli(at::Tensor& self, double p, Generator g) {
  return templates::bernoulli_impl_<BernoulliKernel, void>(self, p, std::move(g));
}
at::Tensor& Random(at::Tensor& self, Generator g) {
  if (self.numel() > 0) Integers(self, 0, NaturalRange(self.scalar_type()), g);
  return self;
}
at::Tensor& RandomFrom(at::Tensor& self, int64_t from, std::optional<int64_t> to, Generator g) {
  return templates::random_from_to_impl<IntegerKernel, void>(self, from, to, std::move(g));
}
at::Tensor& RandomTo(at::Tensor& self, int64_t to, Generator g) {
  return RandomFrom(self, 0, to, std::move(g));
}

template <typename Mean, typename Std>
at::Tensor NormalOf(Mean mean, Std std, Generator g) {
  return templates::normal_impl<NormalKernel, void>(mean, std, std::move(g));
}
template <typename Mean, typename Std>
at::Tensor& NormalOfOut(Mean mean, Std std, Generator g, at::Tensor& out) {
  return templates::normal_out_impl<NormalKernel, void>(out, mean, std, std::move(g));
}

void CheckMultinomial(const at::Tensor& self, int64_t count, bool replacement) {
  constexpr int64_t kMostCategories = 1 << 24;
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      at::isFloatingType(self.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(replacement || count <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(self.size(-1) <= kMostCategories, "number of categories cannot exceed 2^24");
}

at::Tensor Multinomial(const at::Tensor& self, int64_t count, bool replacement, Generator g) {
  CheckMultinomial(self, count, replacement);
  at::DimVector sizes(self.sizes());
  sizes.back() = count;
  if (self.numel() == 0) return at::empty(sizes, self.options().dtype(at::kLong));
  TORCH_CHECK(self.max().lt(INFINITY).logical_and(self.min().ge(0)).item<bool>(),
              "probability tensor contains either `inf`, `nan` or element < 0");
  const at::Tensor weights =
      self.to(self.scalar_type() == at::kDouble || replacement ? at::kDouble : at::kFloat);
  TORCH_CHECK(at::sum(weights, {-1}).gt(0).all().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
  if (replacement && count > 1) {
    // In (0, total], so that a category of weight 0 is never the first whose running sum is enough.
    const at::Tensor sums = at::cumsum(weights, -1);
    at::Tensor drawn = at::empty(sizes, weights.options());
    drawn.uniform_(0, 1, std::move(g)).neg_().add_(1).mul_(sums.narrow(-1, self.size(-1) - 1, 1));
    return at::searchsorted(sums, drawn);
  }
  // The categories in the order in which exponential clocks of these rates ring.
  at::Tensor rank = at::empty_like(weights, at::MemoryFormat::Contiguous);
  rank.exponential_(1, std::move(g)).clamp_min_(1e-30);
  rank = weights.div(rank);
  return count == 1 ? at::argmax(rank, -1, true) : std::get<1>(at::topk(rank, count));
}

at::Tensor& MultinomialOut(const at::Tensor& self, int64_t count, bool replacement, Generator g,
                           at::Tensor& out) {
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(out.scalar_type() == at::kLong,
              "multinomial expects Long tensor output, got: ", out.scalar_type());
  const at::Tensor drawn = Multinomial(self, count, replacement, std::move(g));
  at::native::resize_output(out, drawn.sizes());
  return out.copy_(drawn);
}

at::Tensor Rrelu(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                 const at::Scalar& upper, bool training, Generator g) {
  const double low = lower.toDouble(), high = upper.toDouble();
  TORCH_CHECK(low <= high, "Lower bound should be less than or equal to the upper bound");
  if (!training) return at::leaky_relu(self, (low + high) / 2);
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got ", "self.shape=", self.sizes(),
              " and noise.shape=", noise.sizes());
  noise.uniform_(low, high, std::move(g));
  noise.copy_(at::where(self.le(0), noise, at::ones({}, noise.options())));
  return at::mul(self, noise);
}
at::Tensor& RreluOut(const at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                     const at::Scalar& upper, bool training, Generator g, at::Tensor& out) {
  const at::Tensor result = Rrelu(self, noise, lower, upper, training, std::move(g));
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}
at::Tensor& RreluInPlace(at::Tensor& self, at::Tensor& noise, const at::Scalar& lower,
                         const at::Scalar& upper, bool training, Generator g) {
  return self.copy_(Rrelu(self, noise, lower, upper, training, std::move(g)));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  using at::Tensor;
  m.impl("uniform_", TORCH_FN(Uniform));
  m.impl("normal_", TORCH_FN(Normal));
  m.impl("log_normal_", TORCH_FN(LogNormal));
  m.impl("cauchy_", TORCH_FN(Cauchy));
  m.impl("exponential_", TORCH_FN(Exponential));
  m.impl("geometric_", TORCH_FN(Geometric));
  m.impl("bernoulli_.float", TORCH_FN(Bernoulli));
  m.impl("random_", TORCH_FN(Random));
  m.impl("random_.from", TORCH_FN(RandomFrom));
  m.impl("random_.to", TORCH_FN(RandomTo));
  m.impl("normal.Tensor_float", TORCH_FN((NormalOf<const Tensor&, double>)));
  m.impl("normal.float_Tensor", TORCH_FN((NormalOf<double, const Tensor&>)));
  m.impl("normal.Tensor_Tensor", TORCH_FN((NormalOf<const Tensor&, const Tensor&>)));
  m.impl("normal.Tensor_float_out", TORCH_FN((NormalOfOut<const Tensor&, double>)));
  m.impl("normal.float_Tensor_out", TORCH_FN((NormalOfOut<double, const Tensor&>)));
  m.impl("normal.Tensor_Tensor_out", TORCH_FN((NormalOfOut<const Tensor&, const Tensor&>)));
  m.impl("multinomial", TORCH_FN(Multinomial));
  m.impl("multinomial.out", TORCH_FN(MultinomialOut));
  m.impl("rrelu_with_noise", TORCH_FN(Rrelu));
  m.impl("rrelu_with_noise_", TORCH_FN(RreluInPlace));
  m.impl("rrelu_with_noise.out", TORCH_FN(RreluOut));
}

}  // namespace neuron::aten
