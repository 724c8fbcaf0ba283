// Batch normalisation: PyTorch's ops write running statistics that their schemas do not mark as
// written, the device's own ops do.
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <torch/library.h>

#include <array>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Returns = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

c10::IValue Optional(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? c10::IValue(*tensor) : c10::IValue();
}

// What batch statistics are kept in: float for narrower inputs.
at::ScalarType StatType(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor OutMeta(const at::Tensor& input) {
  return at::empty_like(input, input.suggest_memory_format());
}

Returns BatchNormMeta(const at::Tensor& input, const OptionalTensor&, const OptionalTensor&,
                      double) {
  const auto stat = [&] {
    return at::empty({input.size(1)}, input.options().dtype(StatType(input)));
  };
  return {OutMeta(input), stat(), stat()};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> BatchNormUpdateMeta(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double, double eps) {
  const auto [out, mean, rstd] = BatchNormMeta(input, weight, bias, eps);
  return {out, mean, rstd, running_mean, running_var};
}

at::Tensor BatchNormFixedMeta(const at::Tensor& input, const OptionalTensor&, const OptionalTensor&,
                              const at::Tensor&, const at::Tensor&, double) {
  return OutMeta(input);
}

Returns Fixed(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
              const OptionalTensor& mean, const OptionalTensor& var, double eps) {
  TORCH_CHECK(mean && mean->defined() && var && var->defined(),
              "batch_norm: without training it needs running_mean and running_var");
  static OpKernel& kernel = GetOpKernel("neuron::batch_norm_fixed");
  torch::jit::Stack stack{input, Optional(weight), Optional(bias), *mean, *var, eps};
  kernel.Run(&stack);
  const auto none = [&] { return at::empty({0}, input.options().dtype(StatType(input))); };
  return {stack[0].toTensor(), none(), none()};
}

Returns BatchNorm(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                  const OptionalTensor& running_mean, const OptionalTensor& running_var,
                  bool training, double momentum, double eps) {
  TORCH_CHECK(input.dim() >= 2, "batch_norm: expected an input of at least 2 dimensions, got ",
              input.dim());
  if (!training) return Fixed(input, weight, bias, running_mean, running_var, eps);
  const bool has_mean = running_mean && running_mean->defined();
  TORCH_CHECK(has_mean == (running_var && running_var->defined()),
              "batch_norm: running_mean and running_var must be given together");
  static OpKernel& plain = GetOpKernel("neuron::batch_norm");
  static OpKernel& updating = GetOpKernel("neuron::batch_norm_update");
  torch::jit::Stack stack{input, Optional(weight), Optional(bias)};
  if (has_mean) {
    stack.insert(stack.end(), {*running_mean, *running_var, momentum, eps});
  } else {
    stack.emplace_back(eps);
  }
  (has_mean ? updating : plain).Run(&stack);
  return {stack[0].toTensor(), stack[1].toTensor(), stack[2].toTensor()};
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> BatchNormOut(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    const OptionalTensor& running_mean, const OptionalTensor& running_var, bool training,
    double momentum, double eps, at::Tensor& out, at::Tensor& save_mean, at::Tensor& save_invstd) {
  const auto [y, mean, invstd] =
      BatchNorm(input, weight, bias, running_mean, running_var, training, momentum, eps);
  const auto store = [](at::Tensor& to, const at::Tensor& from) {
    at::native::resize_output(to, from.sizes());
    to.copy_(from);
  };
  store(out, y);
  store(save_mean, mean);
  store(save_invstd, invstd);
  return {out, save_mean, save_invstd};
}

Returns Legit(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
              at::Tensor& running_mean, at::Tensor& running_var, bool training, double momentum,
              double eps) {
  return BatchNorm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Returns LegitNoStats(const at::Tensor& input, const OptionalTensor& weight,
                     const OptionalTensor& bias, bool training, double momentum, double eps) {
  return BatchNorm(input, weight, bias, std::nullopt, std::nullopt, training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> WithUpdate(
    const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
    at::Tensor& running_mean, at::Tensor& running_var, double momentum, double eps) {
  const auto [out, mean, invstd] =
      BatchNorm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {out, mean, invstd, at::empty({0}, input.options().dtype(at::kByte))};
}

Returns BatchNormBackward(const at::Tensor& grad_out, const at::Tensor& input,
                          const at::Tensor& weight, const OptionalTensor& running_mean,
                          const OptionalTensor& running_var, const OptionalTensor& save_mean,
                          const OptionalTensor& save_var, bool update, double eps,
                          std::array<bool, 3> output_mask, const at::Tensor&) {
  return at::native_batch_norm_backward(grad_out, input, weight, running_mean, running_var,
                                        save_mean, save_var, update, eps, output_mask);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(neuron, m) {
  m.def(
      "batch_norm(Tensor input, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, "
      "Tensor)");
  m.def(
      "batch_norm_update(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, "
      "Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor(a!), "
      "Tensor(b!))");
  m.def(
      "batch_norm_fixed(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor "
      "running_var, float eps) -> Tensor");
}

TORCH_LIBRARY_IMPL(neuron, Meta, m) {
  m.impl("batch_norm", TORCH_FN(BatchNormMeta));
  m.impl("batch_norm_update", TORCH_FN(BatchNormUpdateMeta));
  m.impl("batch_norm_fixed", TORCH_FN(BatchNormFixedMeta));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", TORCH_FN(BatchNorm));
  m.impl("native_batch_norm.out", TORCH_FN(BatchNormOut));
  m.impl("_native_batch_norm_legit", TORCH_FN(Legit));
  m.impl("_native_batch_norm_legit.no_stats", TORCH_FN(LegitNoStats));
  m.impl("_batch_norm_with_update", TORCH_FN(WithUpdate));
  m.impl("batch_norm_backward", TORCH_FN(BatchNormBackward));
}

}  // namespace neuron::aten
