// The calls of the table of libraries: libtorch's kernel for the CPU, in queue order, on the core's
// own memory.
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <sstream>

#include "aten/call_site.h"
#include "aten/device/errors.h"
#include "aten/map_args.h"
#include "aten/op_kernel.h"
#include "aten/openmp.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace neuron::aten {
namespace {

// Work on fewer elements is not worth handing to another thread.
constexpr int64_t kShortElements = 2048;
constexpr int64_t kParallelElements = 1 << 16;

// One call, with all that it reads and writes as tensors of the CPU.
struct HostCall {
  explicit HostCall(const c10::OperatorHandle& handle) : op(handle) {}
  c10::OperatorHandle op;
  torch::jit::Stack stack;          // arguments, then results
  std::vector<at::Tensor> results;  // where the results go; undefined: they stay in `stack`
  std::string where;                // for errors: op, arguments, place of the call
  int64_t elements = 0;             // of all tensors
};

[[noreturn]] void Fail(ErrorCode code, const std::string& message, const HostCall& call) {
  throw Error(code, message + call.where);
}

void Compute(HostCall& call) {
  const OpenMpThreads threads(call.elements >= kParallelElements);
  const at::NoGradGuard no_grad;
  const c10::impl::ExcludeDispatchKeyGuard guard(
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
      c10::python_ks);
  try {
    call.op.callBoxed(call.stack);
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i].defined()) call.results[i].copy_(call.stack[i].toTensor());
    }
  } catch (const c10::IndexError& error) {
    Fail(ErrorCode::kOutOfRange, error.what_without_backtrace(), call);
  } catch (const c10::ValueError& error) {
    Fail(ErrorCode::kInvalidArgument, error.what_without_backtrace(), call);
  } catch (const c10::NotImplementedError& error) {
    Fail(ErrorCode::kUnsupported, error.what_without_backtrace(), call);
  } catch (const c10::Error& error) {
    Fail(ErrorCode::kFailedExecution, error.what_without_backtrace(), call);
  }
}

at::Tensor HostView(const at::Tensor& tensor, HostCall& call) {
  if (!tensor.defined()) return tensor;
  call.elements += tensor.numel();
  // A number's owner may change it before the call is made.
  if (!tensor.is_privateuseone()) {
    at::Tensor number = tensor.clone();
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
      number.unsafeGetTensorImpl()->set_wrapped_number(true);
    return number;
  }
  void* data = nullptr;
  if (tensor.numel() > 0) {
    data = runtime::GetDevice(tensor.device().index())
               .HostView(reinterpret_cast<platform::DeviceAddress>(tensor.const_data_ptr()));
    TORCH_CHECK_NOT_IMPLEMENTED(data != nullptr,
                                "this platform's memory is out of reach of libraries on the host");
  }
  return at::from_blob(data, tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
}

std::string Where(const std::string& op, const c10::IValue* args, size_t count) {
  std::ostringstream out;
  out << "\n  in " << op << "(";
  const char* separator = "";
  for (size_t i = 0; i < count; ++i) {
    if (!args[i].isTensor() || !args[i].toTensor().defined()) continue;
    const at::Tensor& tensor = args[i].toTensor();
    out << separator << c10::toString(tensor.scalar_type()) << tensor.sizes();
    separator = ", ";
  }
  out << ")";
  const std::string site = PythonCallSite();
  if (!site.empty()) out << "\n  called at " << site;
  return out.str();
}

void Submit(const std::shared_ptr<HostCall>& call, int device) {
  Guarded([&] {
    runtime::Initialize();
    platform::Queue& queue = runtime::CurrentStream(device).queue();
    if (call->elements <= kShortElements) {
      queue.EnqueueShort([call] { Compute(*call); });
    } else {
      queue.Enqueue([call] { Compute(*call); });
    }
  });
}

at::Tensor ToDevice(const at::Tensor& host, c10::Device device) {
  if (!host.defined()) return host;
  at::Tensor out = at::empty_strided(host.sizes(), host.strides(), host.options().device(device));
  return out.copy_(host);
}

c10::IValue ToDevice(const c10::IValue& value, c10::Device device) {
  return MapArg(value, device, [&](const at::Tensor& host) { return ToDevice(host, device); });
}

}  // namespace

bool OpKernel::ShapesFromData() const {
  if (entry_.lower != nullptr || library_ == nullptr) return false;
  if (library_->shapes_from_data) return true;
  // A kernel that is composed of others is one for meta tensors too.
  return !op_.hasKernelForDispatchKey(c10::DispatchKey::Meta) &&
         !op_.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
         !op_.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional);
}

void OpKernel::LaunchLibrary(const c10::IValue* args, const Call& call,
                             const c10::SmallVector<at::Tensor, 4>& results) const {
  counter_.library.fetch_add(1, std::memory_order_relaxed);
  auto host = std::make_shared<HostCall>(op_);
  Guarded([&] {
    runtime::Initialize();
    const auto view = [&](const at::Tensor& tensor) { return HostView(tensor, *host); };
    for (size_t i = 0; i < schema_.args.size(); ++i)
      host->stack.push_back(MapArg(args[i], c10::Device(c10::kCPU), view));
    for (size_t i = 0; i < results.size(); ++i)
      host->results.push_back(schema_.returned_args[i] < 0 ? view(results[i]) : at::Tensor());
  });
  host->where = Where(schema_.name, args, schema_.args.size());
  Submit(host, call.device.index());
}

torch::jit::Stack OpKernel::RunLibraryNow(const c10::IValue* args, const Call& call) const {
  counter_.library.fetch_add(1, std::memory_order_relaxed);
  auto host = std::make_shared<HostCall>(op_);
  Guarded([&] {
    runtime::Initialize();
    for (size_t i = 0; i < schema_.args.size(); ++i) {
      const bool output = schema_.args[i].output_only;
      const auto view = [&](const at::Tensor& tensor) {
        // What the call resizes cannot be a view.
        return output ? at::empty({0}, tensor.options().device(c10::kCPU))
                      : HostView(tensor, *host);
      };
      host->stack.push_back(MapArg(args[i], c10::Device(c10::kCPU), view));
    }
  });
  host->where = Where(schema_.name, args, schema_.args.size());
  Submit(host, call.device.index());
  Guarded([&] { runtime::CurrentStream(call.device.index()).queue().Synchronize(); });
  torch::jit::Stack returned;
  for (size_t i = 0; i < host->stack.size(); ++i) {
    const int source = i < schema_.returned_args.size() ? schema_.returned_args[i] : -1;
    if (source < 0) {
      returned.push_back(ToDevice(host->stack[i], call.device));
      continue;
    }
    if (schema_.args[static_cast<size_t>(source)].output_only) {
      const at::Tensor& out = args[source].toTensor();
      const at::Tensor& value = host->stack[i].toTensor();
      at::native::resize_output(out, value.sizes());
      at::Tensor(out).copy_(value);
    }
    returned.push_back(args[source]);
  }
  return returned;
}

}  // namespace neuron::aten
