#include "aten/compiled_graph.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>

#include "aten/device/allocator.h"
#include "aten/device/errors.h"
#include "aten/device/generator.h"
#include "aten/dtype.h"
#include "platform/driver.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace neuron::aten {
namespace {

platform::DeviceAddress AddressOf(const at::Tensor& tensor) {
  return reinterpret_cast<platform::DeviceAddress>(tensor.const_data_ptr());
}

}  // namespace

CompiledGraph::CompiledGraph(const ir::Graph& graph, int64_t random_count)
    : random_count_(static_cast<uint64_t>(random_count)) {
  for (const ir::Op* parameter : graph.parameters()) {
    inputs_.push_back(
        {ToScalarType(parameter->type.dtype), parameter->type.dims, parameter->Ints("strides")});
  }
  for (const ir::Output& output : graph.outputs()) {
    outputs_.push_back(
        {ToScalarType(output.value->type.dtype), output.value->type.dims, output.strides});
  }
  auto context = std::make_shared<platform::LaunchContext>();
  context->op = "compiled graph " + graph.name();
  context_ = std::move(context);
  executable_ = platform::GetDriver().compiler().Compile(graph, {.dynamic_sizes = false});
}

int64_t CompiledGraph::Bytes(const std::vector<Spec>& specs) {
  int64_t total = 0;
  for (const Spec& spec : specs) {
    auto bytes = static_cast<int64_t>(c10::elementSize(spec.dtype));
    for (size_t d = 0; d < spec.sizes.size(); ++d) {
      if (spec.strides[d] != 0 || spec.sizes[d] == 0) bytes *= spec.sizes[d];
    }
    total += bytes;
  }
  return total;
}

std::vector<at::Tensor> CompiledGraph::Run(const std::vector<at::Tensor>& inputs) const {
  TORCH_CHECK_VALUE(inputs.size() == inputs_.size(), context_->op, " takes ", inputs_.size(),
                    " tensors, got ", inputs.size());
  c10::Device device(c10::DeviceType::PrivateUse1,
                     static_cast<c10::DeviceIndex>(runtime::CurrentDevice()));
  if (!inputs.empty()) device = inputs[0].device();
  std::vector<platform::DeviceAddress> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor& x = inputs[i];
    TORCH_CHECK(x.device() == device && x.is_privateuseone(), "input ", i, " of ", context_->op,
                " is on ", x.device(), ", expected ", device);
    TORCH_CHECK(
        x.scalar_type() == inputs_[i].dtype && x.sizes() == c10::IntArrayRef(inputs_[i].sizes) &&
            (x.numel() <= 1 || x.strides() == c10::IntArrayRef(inputs_[i].strides)),
        "input ", i, " of ", context_->op, " is ", x.scalar_type(), x.sizes(), " with strides ",
        x.strides(), ", compiled for ", inputs_[i].dtype, c10::IntArrayRef(inputs_[i].sizes),
        " with strides ", c10::IntArrayRef(inputs_[i].strides));
    operands.push_back(AddressOf(x));
  }
  const c10::DeviceGuard guard(device);
  std::vector<at::Tensor> outputs;
  for (const Spec& spec : outputs_) {
    outputs.push_back(at::detail::empty_strided_generic(
        spec.sizes, spec.strides, Allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        spec.dtype));
    operands.push_back(AddressOf(outputs.back()));
  }
  Guarded([&] {
    runtime::Initialize();
    runtime::Stream& stream = runtime::CurrentStream(device.index());
    platform::DeviceAddress scratch = 0;
    if (executable_->scratch_bytes() > 0) {
      scratch = runtime::Allocate(device.index(), static_cast<size_t>(executable_->scratch_bytes()),
                                  stream);
      operands.push_back(scratch);
    }
    std::vector<uint64_t> scalars;
    if (random_count_ > 0) {
      const auto [seed, first] = ReserveRandom(std::nullopt, device.index(), random_count_);
      scalars = {seed, first};
    }
    stream.queue().Launch(executable_, operands, scalars, context_);
    if (scratch != 0) runtime::Free(scratch);
  });
  return outputs;
}

}  // namespace neuron::aten
