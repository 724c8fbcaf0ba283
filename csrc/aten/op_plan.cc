// The miss path of OpKernel: metadata from PyTorch's meta kernel, lowering, compilation.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <sstream>

#include "aten/device/errors.h"
#include "aten/dtype.h"
#include "aten/map_args.h"
#include "aten/op_kernel.h"
#include "runtime/device.h"
#include "support/env.h"

namespace neuron::aten {
namespace {

constexpr size_t kMaxPlans = 1 << 16;  // per op: beyond it all are dropped and made anew

bool OnDevice(const at::Tensor& tensor) {
  return tensor.device().type() == c10::DeviceType::PrivateUse1;
}

at::Tensor ToMeta(const at::Tensor& tensor) {
  // Numbers stay what they are: meta kernels take 0-dim CPU tensors as every kernel does.
  if (!tensor.defined() || !OnDevice(tensor)) return tensor;
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
}

ResultMeta MetaOf(const at::Tensor& tensor) {
  ResultMeta meta;
  meta.defined = tensor.defined();
  if (!meta.defined) return meta;
  meta.sizes.append(tensor.sizes().begin(), tensor.sizes().end());
  meta.strides.append(tensor.strides().begin(), tensor.strides().end());
  meta.dtype = tensor.scalar_type();
  meta.numel = tensor.numel();
  meta.bytes =
      at::detail::computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size());
  return meta;
}

// PyTorch's meta kernel of convolution always says contiguous; its kernels for CPU and CUDA give
// channels last where the input or the weight is so, except in float64 of three dimensions.
void FollowMemoryFormat(const c10::IValue* args, ResultMeta& meta) {
  const size_t rank = meta.sizes.size();
  if (rank < 4 || (rank == 5 && meta.dtype == at::kDouble)) return;
  const at::MemoryFormat wanted =
      rank == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
  if (args[0].toTensor().suggest_memory_format() != wanted &&
      args[1].toTensor().suggest_memory_format() != wanted)
    return;
  const std::vector<int64_t> strides = rank == 4 ? c10::get_channels_last_strides_2d(meta.sizes)
                                                 : c10::get_channels_last_strides_3d(meta.sizes);
  meta.strides.assign(strides.begin(), strides.end());
}

DType NeedDType(c10::ScalarType type, const lowering::Entry& entry) {
  const auto dtype = ToDType(type);
  if (!dtype || (IsComplex(*dtype) && !entry.moves_only && !entry.complex_as_pairs)) {
    NEURON_THROW(kUnsupported, "no code for dtype ", c10::toString(type));
  }
  return *dtype;
}

// Type and strides as the graph sees them: complex tensors as pairs where the lowering wants that.
ir::Type GraphType(DType dtype, ir::Dims dims, ir::Dims& strides, const lowering::Entry& entry) {
  if (!IsComplex(dtype) || !entry.complex_as_pairs) return {dtype, std::move(dims)};
  for (int64_t& stride : strides) stride *= 2;
  dims.push_back(2);
  strides.push_back(1);
  return {dtype == DType::kC64 ? DType::kF32 : DType::kF64, std::move(dims)};
}

ir::Dims ToDims(c10::IntArrayRef values) { return {values.begin(), values.end()}; }

std::string Describe(const at::Tensor& tensor) {
  std::ostringstream out;
  const auto dtype = ToDType(tensor.scalar_type());
  out << (dtype ? Name(*dtype) : c10::toString(tensor.scalar_type())) << "[";
  for (int64_t d = 0; d < tensor.dim(); ++d) out << (d ? "," : "") << tensor.size(d);
  out << "]";
  return out.str();
}

}  // namespace

std::shared_ptr<const Plan> OpKernel::MakePlan(const c10::IValue* args, Call& call) {
  auto plan = std::make_shared<Plan>();
  if (ShapesFromData()) {
    plan->kind = PlanKind::kLibraryNow;
    return KeepPlan(call, plan);
  }
  if (RunMeta(args, call, plan->results)) {
    // An out= argument was resized: its new shape is part of the key.
    call = Call();
    Gather(args, call);
    if (auto found = FindPlan(call)) return found;
  }
  try {
    bool empty = true;
    for (const ResultMeta& meta : plan->results) empty &= meta.numel == 0;
    if (entry_.lower == nullptr) {
      plan->kind = empty && !plan->results.empty() ? PlanKind::kExecutable : PlanKind::kLibrary;
    } else if (!empty) {
      Lower(args, call, *plan);
    }
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnsupported && library_ != nullptr) {
      plan->kind = PlanKind::kLibrary;
      plan->scalars.clear();
      return KeepPlan(call, plan);
    }
    const bool may_fall_back = error.code() == ErrorCode::kUnsupported &&
                               !env::GetBool(env::Id::kBoolFallbackOnlyForUnimplemented);
    if (!may_fall_back) {
      Guarded([&] { throw Error(error.code(), schema_.name + ": " + error.what()); });
    }
    plan->kind = PlanKind::kFallback;
  }
  return KeepPlan(call, plan);
}

std::shared_ptr<const Plan> OpKernel::KeepPlan(const Call& call, std::shared_ptr<const Plan> plan) {
  std::lock_guard lock(mutex_);
  if (plans_.size() >= kMaxPlans) plans_.clear();
  return plans_.emplace(call.key, std::move(plan)).first->second;
}

// Runs the op on meta tensors: its checks, promotion, shapes and strides are PyTorch's own. Returns
// true if a written argument had to be resized.
bool OpKernel::RunMeta(const c10::IValue* args, const Call& call,
                       std::vector<ResultMeta>& results) const {
  (void)call;
  torch::jit::Stack stack;
  for (size_t i = 0; i < schema_.args.size(); ++i)
    stack.push_back(MapArg(args[i], c10::Device(c10::kMeta), ToMeta));
  {
    const c10::impl::ExcludeDispatchKeyGuard guard(c10::autograd_dispatch_keyset |
                                                   c10::autocast_dispatch_keyset | c10::python_ks);
    op_.callBoxed(stack);
  }
  bool resized = false;
  for (size_t i = 0; i < schema_.returned_args.size(); ++i) {
    const c10::IValue& returned = stack[stack.size() - schema_.returned_args.size() + i];
    const at::Tensor meta = returned.isNone() ? at::Tensor() : returned.toTensor();
    results.push_back(MetaOf(meta));
    if (!meta.defined()) continue;
    if (schema_.name == "aten::convolution") FollowMemoryFormat(args, results.back());
    const int source = schema_.returned_args[i];
    if (source < 0 || !schema_.args[static_cast<size_t>(source)].output_only) continue;
    const at::Tensor& out = args[source].toTensor();
    if (out.sizes() == meta.sizes()) {
      results.back().strides.assign(out.strides().begin(), out.strides().end());
      continue;
    }
    at::native::resize_output(out, meta.sizes());
    if (out.strides() != meta.strides())
      out.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes(), meta.strides());
    resized = true;
  }
  return resized;
}

namespace {

// Adds the graph's parameters, scalars and lowering arguments in the order in which
// OpKernel::Gather and Launch meet them.
class ArgBuilder {
 public:
  ArgBuilder(ir::Graph& graph, lowering::Context& context, const lowering::Entry& entry, Plan& plan,
             std::ostringstream& text)
      : graph_(graph), context_(context), entry_(entry), plan_(plan), text_(text) {}

  void Add(int index, const ArgSpec& spec, const c10::IValue& value) {
    if (spec.output_only) return;
    context_.SetArg(spec.name, Convert(index, spec, value));
  }

 private:
  lowering::Arg Convert(int index, const ArgSpec& spec, const c10::IValue& value) {
    if (value.isNone()) return std::monostate();
    switch (spec.kind) {
      case ArgKind::kTensor:
        return Tensor(index, -1, value.toTensor());
      case ArgKind::kTensorList: {
        std::vector<lowering::TensorArg> list;
        int element = 0;
        for (const c10::IValue& item : value.toListRef()) {
          list.push_back(item.isNone() ? lowering::TensorArg()
                                       : Tensor(index, element, item.toTensor()));
          ++element;
        }
        return list;
      }
      case ArgKind::kNumber:
        return Number(index, spec, value.toScalar());
      case ArgKind::kInt:
        return value.toInt();
      case ArgKind::kIntList:
        return ToDims(IntsOf(value));
      case ArgKind::kBool:
        return value.toBool();
      case ArgKind::kString:
        return value.toStringRef();
      case ArgKind::kDtype:
        return NeedDType(value.toScalarType(), entry_);
      case ArgKind::kNumberList:
        NEURON_THROW(kUnsupported, "a list of numbers, '", spec.name, "'");
      case ArgKind::kDevice:
      case ArgKind::kGenerator:
      case ArgKind::kIgnored:
        break;
    }
    return std::monostate();
  }

  lowering::TensorArg Tensor(int index, int element, const at::Tensor& tensor) {
    lowering::TensorArg out;
    if (!tensor.defined()) return out;
    text_ << (first_ ? "" : ", ") << Describe(tensor);
    first_ = false;
    const DType dtype = NeedDType(tensor.scalar_type(), entry_);
    out.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (OnDevice(tensor)) {
      ir::Dims strides = ToDims(tensor.strides());
      const ir::Type type = GraphType(dtype, ToDims(tensor.sizes()), strides, entry_);
      out.is_complex = IsComplex(dtype);
      out.value = graph_.AddParameter(type, strides);
      return out;
    }
    if (IsComplex(dtype)) NEURON_THROW(kUnsupported, "complex number on the CPU");
    const DType word = IsFloat(dtype)          ? DType::kF64
                       : dtype == DType::kBool ? DType::kBool
                                               : DType::kI64;
    plan_.scalars.push_back({index, element});
    out.value = context_.b.Convert(graph_.AddScalar(word), dtype);
    return out;
  }

  lowering::ScalarArg Number(int index, const ArgSpec& spec, const at::Scalar& scalar) {
    if (scalar.isComplex()) NEURON_THROW(kUnsupported, "complex number '", spec.name, "'");
    lowering::ScalarArg out;
    out.dtype = scalar.isFloatingPoint() ? DType::kF64
                : scalar.isBoolean()     ? DType::kBool
                                         : DType::kI64;
    const double number = scalar.toDouble();
    const bool common =
        number == 0 || number == 1 || number == -1 || number == 2 || number == 3 || number == 0.5;
    if (spec.is_static || common) out.known = number;
    plan_.scalars.push_back({index, -1});
    out.value = graph_.AddScalar(out.dtype);
    return out;
  }

  ir::Graph& graph_;
  lowering::Context& context_;
  const lowering::Entry& entry_;
  Plan& plan_;
  std::ostringstream& text_;
  bool first_ = true;
};

}  // namespace

void OpKernel::Lower(const c10::IValue* args, const Call& call, Plan& plan) const {
  ir::Graph graph(schema_.name);
  lowering::Context context(graph, schema_.name);
  context.SetDefaultFloat(NeedDType(c10::typeMetaToScalarType(c10::get_default_dtype()), entry_));
  std::ostringstream text;
  ArgBuilder builder(graph, context, entry_, plan, text);
  for (size_t i = 0; i < schema_.args.size(); ++i)
    builder.Add(static_cast<int>(i), schema_.args[i], args[i]);
  if (entry_.random) {
    ir::Op* seed = graph.AddScalar(DType::kI64);
    context.SetRandom(seed, graph.AddScalar(DType::kI64));
    plan.random_count = plan.results[0].numel;
  }
  std::vector<ir::Dims> strides;
  for (const ResultMeta& meta : plan.results) {
    strides.push_back(ToDims(meta.strides));
    if (!meta.defined) {
      context.AddUnwantedResult();
      continue;
    }
    context.AddResult(
        GraphType(NeedDType(meta.dtype, entry_), ToDims(meta.sizes), strides.back(), entry_));
  }
  entry_.lower(context);
  for (size_t i = 0; i < plan.results.size(); ++i) {
    if (!plan.results[i].defined) continue;
    int alias = -1;
    const int source = schema_.returned_args[i];
    const at::Tensor* written = source >= 0 ? &args[source].toTensor() : nullptr;
    for (size_t k = 0; written != nullptr && alias < 0 && k < call.inputs.size(); ++k) {
      const at::Tensor& input = *call.inputs[k];
      const bool same = input.const_data_ptr() == written->const_data_ptr() &&
                        input.sizes() == written->sizes() &&
                        input.strides() == written->strides() &&
                        input.scalar_type() == written->scalar_type();
      if (same && input.numel() > 0) alias = static_cast<int>(k);
    }
    graph.AddOutput(context.returned()[i], strides[i], alias);
  }
  graph.RemoveDeadOps();
  auto launch = std::make_shared<platform::LaunchContext>();
  launch->op = schema_.name;
  launch->arguments = text.str();
  plan.context = std::move(launch);
  plan.executable = platform::GetDriver().compiler().Compile(graph, {.dynamic_sizes = true});
}

}  // namespace neuron::aten
