// PyTorch's fused optimizer steps and its gradient scaler's ops: the device's own op for each
// tensor of their lists.
#include <ATen/core/TensorBody.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

// On the CPU: becomes an argument of the launch, so that another learning rate compiles nothing.
at::Tensor NumberTensor(double value) {
  at::Tensor tensor = at::empty({}, at::dtype(at::kDouble));
  *tensor.mutable_data_ptr<double>() = value;
  return tensor;
}

c10::IValue Optional(const OptionalTensor& tensor) {
  return tensor && tensor->defined() ? c10::IValue(*tensor) : c10::IValue();
}

void Run(OpKernel& kernel, torch::jit::Stack stack) { kernel.Run(&stack); }

void CheckLength(const char* op, const char* name, at::TensorList list, size_t length) {
  TORCH_CHECK(list.size() == length, op, ": expected as many ", name, " as parameters (", length,
              "), got ", list.size());
}

void Unscale(const at::Tensor& grad, const OptionalTensor& grad_scale,
             const OptionalTensor& found_inf) {
  if (!grad_scale || !grad_scale->defined()) return;
  static OpKernel& kernel = GetOpKernel("neuron::unscale_gradient_");
  Run(kernel, {grad, *grad_scale, Optional(found_inf)});
}

template <bool kDecoupled>
void Adam(const char* op, at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,
          at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,
          const at::Tensor& lr, double beta1, double beta2, double weight_decay, double eps,
          bool amsgrad, bool maximize, const OptionalTensor& grad_scale,
          const OptionalTensor& found_inf) {
  static OpKernel& plain = GetOpKernel("neuron::adam_");
  static OpKernel& with_maximum = GetOpKernel("neuron::adam_.amsgrad");
  CheckLength(op, "gradients", grads, params.size());
  CheckLength(op, "exp_avgs", exp_avgs, params.size());
  CheckLength(op, "exp_avg_sqs", exp_avg_sqs, params.size());
  CheckLength(op, "state_steps", steps, params.size());
  if (amsgrad) CheckLength(op, "max_exp_avg_sqs", max_exp_avg_sqs, params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].numel() == 0) continue;
    Unscale(grads[i], grad_scale, found_inf);
    torch::jit::Stack stack{params[i], grads[i], exp_avgs[i], exp_avg_sqs[i]};
    if (amsgrad) stack.emplace_back(max_exp_avg_sqs[i]);
    for (c10::IValue value :
         std::initializer_list<c10::IValue>{steps[i], lr, beta1, beta2, weight_decay, eps, maximize,
                                            kDecoupled, Optional(found_inf)}) {
      stack.push_back(std::move(value));
    }
    (amsgrad ? with_maximum : plain).Run(&stack);
  }
}

#define NEURON_ADAM(Name, op, decoupled)                                                          \
  void Name(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,                 \
            at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs, at::TensorList steps,     \
            double lr, double beta1, double beta2, double weight_decay, double eps, bool amsgrad, \
            bool maximize, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {   \
    Adam<decoupled>(op, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps,             \
                    NumberTensor(lr), beta1, beta2, weight_decay, eps, amsgrad, maximize,         \
                    grad_scale, found_inf);                                                       \
  }                                                                                               \
  void Name##Tensor(at::TensorList params, at::TensorList grads, at::TensorList exp_avgs,         \
                    at::TensorList exp_avg_sqs, at::TensorList max_exp_avg_sqs,                   \
                    at::TensorList steps, const at::Tensor& lr, double beta1, double beta2,       \
                    double weight_decay, double eps, bool amsgrad, bool maximize,                 \
                    const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {          \
    Adam<decoupled>(op, params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, steps, lr, beta1,  \
                    beta2, weight_decay, eps, amsgrad, maximize, grad_scale, found_inf);          \
  }
NEURON_ADAM(FusedAdam, "_fused_adam_", false)
NEURON_ADAM(FusedAdamW, "_fused_adamw_", true)
#undef NEURON_ADAM

void SgdTensor(at::TensorList params, at::TensorList grads, at::TensorList buffers,
               double weight_decay, double momentum, const at::Tensor& lr, double dampening,
               bool nesterov, bool maximize, bool is_first_step, const OptionalTensor& grad_scale,
               const OptionalTensor& found_inf) {
  static OpKernel& plain = GetOpKernel("neuron::sgd_");
  static OpKernel& with_momentum = GetOpKernel("neuron::sgd_.momentum");
  CheckLength("_fused_sgd_", "gradients", grads, params.size());
  if (!buffers.empty()) CheckLength("_fused_sgd_", "momentum buffers", buffers, params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].numel() == 0) continue;
    Unscale(grads[i], grad_scale, found_inf);
    if (buffers.empty()) {
      Run(plain, {params[i], grads[i], lr, weight_decay, maximize, Optional(found_inf)});
    } else {
      Run(with_momentum, {params[i], grads[i], buffers[i], lr, weight_decay, momentum, dampening,
                          nesterov, maximize, is_first_step, Optional(found_inf)});
    }
  }
}

void Sgd(at::TensorList params, at::TensorList grads, at::TensorList buffers, double weight_decay,
         double momentum, double lr, double dampening, bool nesterov, bool maximize,
         bool is_first_step, const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  SgdTensor(params, grads, buffers, weight_decay, momentum, NumberTensor(lr), dampening, nesterov,
            maximize, is_first_step, grad_scale, found_inf);
}

void AdagradTensor(at::TensorList params, at::TensorList grads, at::TensorList sums,
                   at::TensorList steps, const at::Tensor& lr, double lr_decay, double weight_decay,
                   double eps, bool maximize, const OptionalTensor& grad_scale,
                   const OptionalTensor& found_inf) {
  static OpKernel& kernel = GetOpKernel("neuron::adagrad_");
  CheckLength("_fused_adagrad_", "gradients", grads, params.size());
  CheckLength("_fused_adagrad_", "state_sums", sums, params.size());
  CheckLength("_fused_adagrad_", "state_steps", steps, params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].numel() == 0) continue;
    Unscale(grads[i], grad_scale, found_inf);
    Run(kernel, {params[i], grads[i], sums[i], steps[i], lr, lr_decay, weight_decay, eps, maximize,
                 Optional(found_inf)});
  }
}

void Adagrad(at::TensorList params, at::TensorList grads, at::TensorList sums, at::TensorList steps,
             double lr, double lr_decay, double weight_decay, double eps, bool maximize,
             const OptionalTensor& grad_scale, const OptionalTensor& found_inf) {
  AdagradTensor(params, grads, sums, steps, NumberTensor(lr), lr_decay, weight_decay, eps, maximize,
                grad_scale, found_inf);
}

void UnscaleAndCheck(at::TensorList tensors, at::Tensor& found_inf, const at::Tensor& inv_scale) {
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(inv_scale.numel() == 1, "inv_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  TORCH_CHECK(inv_scale.scalar_type() == at::kFloat, "inv_scale must be a float tensor.");
  static OpKernel& kernel = GetOpKernel("neuron::unscale_and_check_");
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() != 0) Run(kernel, {tensor, found_inf, inv_scale});
  }
}

at::Tensor& UpdateScale(at::Tensor& self, at::Tensor& growth_tracker, const at::Tensor& found_inf,
                        double growth_factor, double backoff_factor, int64_t growth_interval) {
  TORCH_CHECK(growth_tracker.numel() == 1, "growth_tracker must be a 1-element tensor.");
  TORCH_CHECK(self.numel() == 1, "current_scale must be a 1-element tensor.");
  TORCH_CHECK(found_inf.numel() == 1, "found_inf must be a 1-element tensor.");
  TORCH_CHECK(growth_tracker.scalar_type() == at::kInt, "growth_tracker must be an int tensor.");
  TORCH_CHECK(self.scalar_type() == at::kFloat, "current_scale must be a float tensor.");
  TORCH_CHECK(found_inf.scalar_type() == at::kFloat, "found_inf must be a float tensor.");
  static OpKernel& kernel = GetOpKernel("neuron::update_scale_");
  Run(kernel, {self.reshape({}), growth_tracker.reshape({}), found_inf.reshape({}), growth_factor,
               backoff_factor, growth_interval});
  return self;
}

// All of the own ops' results are their written arguments, in order.
void ReturnWritten(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  torch::jit::Stack written;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.push_back((*stack)[first + i]);
  }
  stack->resize(first);
  stack->insert(stack->end(), written.begin(), written.end());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(neuron, m) {
  m.def(
      "adam_(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, Tensor "
      "step, Tensor lr, float beta1, float beta2, float weight_decay, float eps, bool maximize, "
      "bool decoupled, Tensor? found_inf) -> (Tensor(a!), Tensor(b!), Tensor(c!))");
  m.def(
      "adam_.amsgrad(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, "
      "Tensor(d!) max_exp_avg_sq, Tensor step, Tensor lr, float beta1, float beta2, float "
      "weight_decay, float eps, bool maximize, bool decoupled, Tensor? found_inf) -> (Tensor(a!), "
      "Tensor(b!), Tensor(c!), Tensor(d!))");
  m.def(
      "sgd_(Tensor(a!) param, Tensor grad, Tensor lr, float weight_decay, bool maximize, Tensor? "
      "found_inf) -> Tensor(a!)");
  m.def(
      "sgd_.momentum(Tensor(a!) param, Tensor grad, Tensor(b!) momentum_buffer, Tensor lr, float "
      "weight_decay, float momentum, float dampening, bool nesterov, bool maximize, bool "
      "is_first_step, Tensor? found_inf) -> (Tensor(a!), Tensor(b!))");
  m.def(
      "adagrad_(Tensor(a!) param, Tensor grad, Tensor(b!) state_sum, Tensor step, Tensor lr, float "
      "lr_decay, float weight_decay, float eps, bool maximize, Tensor? found_inf) -> (Tensor(a!), "
      "Tensor(b!))");
  m.def("unscale_gradient_(Tensor(a!) grad, Tensor grad_scale, Tensor? found_inf) -> Tensor(a!)");
  m.def(
      "unscale_and_check_(Tensor(a!) self, Tensor(b!) found_inf, Tensor inv_scale) -> (Tensor(a!), "
      "Tensor(b!))");
  m.def(
      "update_scale_(Tensor(a!) self, Tensor(b!) growth_tracker, Tensor found_inf, float "
      "scale_growth_factor, float scale_backoff_factor, int growth_interval) -> (Tensor(a!), "
      "Tensor(b!))");
}

TORCH_LIBRARY_IMPL(neuron, Meta, m) {
  for (const char* name : {"adam_", "adam_.amsgrad", "sgd_", "sgd_.momentum", "adagrad_",
                           "unscale_gradient_", "unscale_and_check_", "update_scale_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&ReturnWritten>());
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_adam_", TORCH_FN(FusedAdam));
  m.impl("_fused_adam_.tensor_lr", TORCH_FN(FusedAdamTensor));
  m.impl("_fused_adamw_", TORCH_FN(FusedAdamW));
  m.impl("_fused_adamw_.tensor_lr", TORCH_FN(FusedAdamWTensor));
  m.impl("_fused_sgd_", TORCH_FN(Sgd));
  m.impl("_fused_sgd_.tensor_lr", TORCH_FN(SgdTensor));
  m.impl("_fused_adagrad_", TORCH_FN(Adagrad));
  m.impl("_fused_adagrad_.tensor_lr", TORCH_FN(AdagradTensor));
  m.impl("_amp_foreach_non_finite_check_and_unscale_", TORCH_FN(UnscaleAndCheck));
  m.impl("_amp_update_scale_", TORCH_FN(UpdateScale));
}

}  // namespace neuron::aten
