// Tensors that are not strided: sparse, quantized, nested (of torch.strided layout). The device has
// none; whatever would make or use one says so. Ops that PyTorch composes of others never come
// here.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace neuron::aten {
namespace {

[[noreturn]] void Refuse(const c10::OperatorHandle& op, const char* what, const char* instead) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "neuron has no ", what, " tensors (", op.operator_name(),
                              "): ", instead);
}

void RefuseSparse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  Refuse(op, "sparse",
         "keep the tensor on the CPU, or move it as a dense one: x.to_dense().to('neuron')");
}

void RefuseQuantized(const c10::OperatorHandle& op, torch::jit::Stack*) {
  Refuse(op, "quantized", "move it as numbers: x.dequantize().to('neuron')");
}

void RefuseNested(const c10::OperatorHandle& op, torch::jit::Stack*) {
  Refuse(op, "nested strided",
         "use layout=torch.jagged, or torch.nested.to_padded_tensor before .to('neuron')");
}

}  // namespace

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseSparse>());
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseQuantized>());
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&RefuseNested>());
}

}  // namespace neuron::aten
