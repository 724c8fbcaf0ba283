#include "aten/fallback.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include "aten/call_site.h"
#include "aten/device/errors.h"
#include "runtime/metrics.h"
#include "support/env.h"
#include "support/logging.h"

namespace neuron::aten {
namespace {

int64_t DeviceBytes(const c10::IValue& value) {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_privateuseone())
      bytes += static_cast<int64_t>(tensor.nbytes());
  };
  if (value.isTensor()) add(value.toTensor());
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) add(element.toTensor());
    }
  }
  return bytes;
}

std::string NameOf(const c10::OperatorHandle& op) {
  const auto& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

void Boxed(const c10::OperatorHandle& op, torch::jit::Stack* stack) { CpuFallback(op, stack); }

}  // namespace

void NoteFallback(const std::string& name, int64_t bytes) {
  if (!Guarded([] { return env::GetBool(env::Id::kBoolFallbackEnabled); })) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, name,
        " has no lowering for these arguments on neuron, and NEURON_FALLBACK_ENABLED=0 "
        "forbids running it on the CPU: unset it, or move the tensors with .cpu() first");
  }
  if (!runtime::CountFallback(name, bytes)) return;
  const std::string site = PythonCallSite();
  Warn(name + " is not lowered for these arguments and runs on the CPU" +
       (site.empty() ? "" : " (called at " + site + ")") +
       "; torch_neuronx.get_fallback_ops() lists all such ops");
}

void CpuFallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  int64_t bytes = 0;
  const size_t n = op.schema().arguments().size();
  for (size_t i = stack->size() - n; i < stack->size(); ++i) bytes += DeviceBytes((*stack)[i]);
  NoteFallback(NameOf(op), bytes);
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&Boxed>());
}

}  // namespace neuron::aten
