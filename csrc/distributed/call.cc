#include "distributed/call.h"

#include <ATen/ops/cat.h>

#include <cstring>

#include "runtime/allocator.h"
#include "runtime/device.h"

namespace neuron::distributed {
namespace {

template <size_t kSize>
void Set(char (&field)[kSize], const char* text) {
  std::strncpy(field, text, kSize - 1);
}

}  // namespace

const at::Tensor& Checked(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK_VALUE(tensor.is_privateuseone(), name,
                    ": the backend \"neuron\" takes tensors on neuron, not on ", tensor.device(),
                    ": move the tensor, or use init_process_group(\"cpu:gloo,neuron:neuron\")");
  TORCH_CHECK_VALUE(!tensor.is_sparse(), name, ": sparse tensors are not supported");
  return tensor;
}

const at::Tensor& Single(const char* name, const ProcessGroupNeuron::Tensors& tensors) {
  TORCH_CHECK_VALUE(tensors.size() == 1, name, ": expected one tensor, got ", tensors.size());
  return Checked(name, tensors[0]);
}

ProcessGroupNeuron::Call::Call(ProcessGroupNeuron& group, const Options& options, int device)
    : group_(group), options_(options), caller_(runtime::CurrentStream(device)), stream_(&caller_) {
  {
    const std::string broken = group.shared_->Broken();
    TORCH_CHECK_WITH(DistBackendError, broken.empty(), options.name,
                     ": the process group failed before: ", broken);
  }
  aten::Guarded([&] {
    if (options.async) {
      if (group.own_stream_ == nullptr || group.own_stream_->device() != device)
        group.own_stream_ = &runtime::NextPoolStream(device, -1);
      stream_ = group.own_stream_;
      const auto ready = runtime::GetDevice(device).CreateEvent(false);
      caller_.queue().Record(*ready);
      stream_->queue().WaitFor(*ready);
    }
    if (group.last_done_ != nullptr && group.last_stream_ != stream_)
      stream_->queue().WaitFor(*group.last_done_);
    runtime::SetCurrentStream(*stream_);
  });
  Set(description_.collective, options.name);
  description_.sequence = ++group.sequence_;
}

ProcessGroupNeuron::Call::~Call() { runtime::SetCurrentStream(caller_); }

void ProcessGroupNeuron::Call::Describe(const at::Tensor& tensor, bool uniform) {
  Set(description_.dtype, c10::toString(tensor.scalar_type()));
  description_.elements = tensor.numel();
  description_.uniform = uniform ? 1 : 0;
  if (uniform && c10d::debug_level() >= c10d::DebugLevel::Detail)
    Set(description_.shape, StrCat(tensor.sizes()).c_str());
}

void ProcessGroupNeuron::Call::Use(const at::Tensor& tensor) {
  if (stream_ == &caller_ || tensor.storage().nbytes() == 0) return;
  const void* data = tensor.storage().data_ptr().get();
  aten::Guarded(
      [&] { runtime::RecordStream(reinterpret_cast<platform::DeviceAddress>(data), *stream_); });
}

at::Tensor ProcessGroupNeuron::Call::Dense(const at::Tensor& tensor) {
  Use(tensor);
  return tensor.contiguous();
}

at::Tensor ProcessGroupNeuron::Call::DenseResult(const at::Tensor& tensor, bool keep_values) {
  Use(tensor);
  if (tensor.is_contiguous()) return tensor;
  const at::Tensor dense =
      keep_values ? tensor.contiguous() : at::empty(tensor.sizes(), tensor.options());
  copy_back_.emplace_back(tensor, dense);
  return dense;
}

at::Tensor ProcessGroupNeuron::Call::Joined(const Tensors& list) {
  Tensors flat;
  for (const at::Tensor& tensor : list) {
    Use(tensor);
    flat.push_back(tensor.reshape(-1));
  }
  return at::cat(flat);
}

void ProcessGroupNeuron::Call::Spread(const at::Tensor& flat, const Tensors& list) {
  int64_t offset = 0;
  for (const at::Tensor& tensor : list) {
    Use(tensor);
    tensor.copy_(flat.reshape(-1).narrow(0, offset, tensor.numel()).view(tensor.sizes()));
    offset += tensor.numel();
  }
}

void ProcessGroupNeuron::Call::Submit(std::function<void(const Round&)> body) {
  const auto timeout = group_.TimeoutOr(options_.timeout);
  auto run = [body = std::move(body), description = description_, timeout, outcome = outcome_,
              shared = group_.shared_] {
    try {
      if (const std::string broken = shared->Broken(); !broken.empty())
        NEURON_THROW(kFailedExecution, broken);
      body({shared->segment, description, std::chrono::steady_clock::now() + timeout,
            shared->hosts.count() > 1 ? &shared->hosts : nullptr});
      outcome->Finish();
    } catch (const std::exception& error) {
      shared->Break(error.what());
      const std::exception_ptr failure = BackendError(error.what());
      outcome->Finish(failure);
      std::rethrow_exception(failure);
    }
  };
  aten::Guarded([&] { stream_->queue().Enqueue(std::move(run)); });
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::Call::Finish(Tensors outputs, bool blocking) {
  for (const auto& [to, from] : copy_back_) to.copy_(from);
  aten::Guarded([&] {
    group_.last_done_ = runtime::GetDevice(stream_->device()).CreateEvent(false);
    stream_->queue().Record(*group_.last_done_);
  });
  group_.last_stream_ = stream_;
  return group_.Issued(c10::make_intrusive<NeuronWork>(
      group_.getRank(), options_.type, description_.sequence,
      StrCat(options_.name, " number ", description_.sequence), *stream_, group_.last_done_,
      outcome_, std::move(outputs), blocking));
}

}  // namespace neuron::distributed
