#include "aten/op_kernel.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cmath>
#include <cstring>

#include "aten/call_site.h"
#include "aten/device/errors.h"
#include "aten/device/generator.h"
#include "aten/dtype.h"
#include "aten/fallback.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace neuron::aten {
namespace {

// Numbers whose value the lowering may know: they are part of the key.
bool IsCommon(double value) {
  return value == 0 || value == 1 || value == -1 || value == 2 || value == 3 || value == 0.5;
}

uint64_t Bits(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Tags keep arguments of different kinds apart in the key.
enum Tag : uint64_t {
  kNone = 0x11,
  kTensor,
  kCpuScalar,
  kList,
  kNumber,
  kInt,
  kInts,
  kBool,
  kString,
  kOverlap
};

void AddNumber(const c10::IValue& value, bool is_static, Hasher& hasher) {
  if (value.isNone()) return hasher.Add(kNone);
  const at::Scalar scalar = value.toScalar();
  const uint64_t kind = scalar.isFloatingPoint() ? 1
                        : scalar.isBoolean()     ? 2
                        : scalar.isComplex()     ? 3
                                                 : 4;
  hasher.Add(kNumber | kind << 8);
  if (scalar.isComplex()) return;
  const double number = scalar.toDouble();
  if (is_static || IsCommon(number)) return hasher.Add(Bits(number));
  // Meta kernels, which only a new key asks, refuse numbers by their sign, or probabilities
  // above 1.
  hasher.Add(static_cast<uint64_t>(number < 0) | static_cast<uint64_t>(number > 1) << 1 |
             static_cast<uint64_t>(std::isnan(number)) << 2);
}

uint64_t ScalarWord(const at::Scalar& scalar) {
  if (scalar.isFloatingPoint()) return Bits(scalar.toDouble());
  if (scalar.isBoolean()) return scalar.toBool() ? 1 : 0;
  return static_cast<uint64_t>(scalar.toLong());
}

// A 0-dim CPU tensor's value, as 64-bit word of its kind.
uint64_t CpuScalarWord(const at::Tensor& tensor) {
  const void* data = tensor.const_data_ptr();
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Float:
      return Bits(*static_cast<const float*>(data));
    case c10::ScalarType::Double:
      return Bits(*static_cast<const double*>(data));
    case c10::ScalarType::Half:
      return Bits(static_cast<float>(*static_cast<const c10::Half*>(data)));
    case c10::ScalarType::BFloat16:
      return Bits(static_cast<float>(*static_cast<const c10::BFloat16*>(data)));
    case c10::ScalarType::Bool:
      return *static_cast<const bool*>(data) ? 1 : 0;
    case c10::ScalarType::Byte:
      return *static_cast<const uint8_t*>(data);
    case c10::ScalarType::Char:
      return static_cast<uint64_t>(static_cast<int64_t>(*static_cast<const int8_t*>(data)));
    case c10::ScalarType::Short:
      return static_cast<uint64_t>(static_cast<int64_t>(*static_cast<const int16_t*>(data)));
    case c10::ScalarType::Int:
      return static_cast<uint64_t>(static_cast<int64_t>(*static_cast<const int32_t*>(data)));
    case c10::ScalarType::UInt16:
      return *static_cast<const uint16_t*>(data);
    case c10::ScalarType::UInt32:
      return *static_cast<const uint32_t*>(data);
    default:
      uint64_t word;
      std::memcpy(&word, data, sizeof word);
      return word;
  }
}

void AllocateResults(const Plan& plan, const OpSchema& schema, const c10::IValue* args,
                     c10::Device device, c10::SmallVector<at::Tensor, 4>& out) {
  for (size_t i = 0; i < schema.returned_args.size(); ++i) {
    const int source = schema.returned_args[i];
    if (source >= 0) {
      out.push_back(args[source].toTensor());
      continue;
    }
    const ResultMeta& meta = plan.results[i];
    if (!meta.defined) {
      out.emplace_back();
      continue;
    }
    static c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
    const c10::DeviceIndex current = static_cast<c10::DeviceIndex>(runtime::CurrentDevice());
    c10::OptionalDeviceGuard guard;
    if (device.index() != current) guard.reset_device(device);
    auto storage =
        c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), meta.bytes,
                                              allocator->allocate(meta.bytes), allocator, true);
    at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
        c10::scalarTypeToTypeMeta(meta.dtype));
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(meta.sizes, meta.strides);
    out.push_back(std::move(tensor));
  }
}

}  // namespace

c10::SmallVector<int64_t, 6> IntsOf(const c10::IValue& value) {
  c10::SmallVector<int64_t, 6> out;
  if (value.isInt()) {
    out.push_back(value.toInt());
  } else if (value.isBoolList()) {
    for (const bool x : value.toBoolList()) out.push_back(x);
  } else {
    const auto ints = value.toDimVector();
    out.append(ints.begin(), ints.end());
  }
  return out;
}

OpKernel::OpKernel(const c10::OperatorHandle& op, const lowering::Entry& entry,
                   const LibraryOp* library)
    : op_(op),
      entry_(entry),
      library_(library),
      schema_(OpSchema::Analyze(op.schema(), entry, library != nullptr)),
      counter_(runtime::GetOpCounter(schema_.name)) {}

void OpKernel::GatherTensor(const at::Tensor& tensor, const ArgSpec& spec, Hasher& hasher,
                            Call& call) const {
  if (!tensor.defined()) return hasher.Add(kNone);
  const bool on_device = tensor.device().type() == c10::DeviceType::PrivateUse1;
  const auto dtype = static_cast<uint64_t>(tensor.scalar_type());
  if (!on_device) {
    TORCH_CHECK(tensor.is_cpu() && tensor.dim() == 0 && !spec.written,
                "Expected all tensors to be on the same device, but '", spec.name, "' of ",
                schema_.name, " is on ", tensor.device(),
                " and the op runs on neuron (only 0-dim cpu tensors may be mixed in)");
    const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
    return hasher.Add(kCpuScalar | dtype << 8 | static_cast<uint64_t>(wrapped) << 16);
  }
  if (call.device.index() < 0) {
    call.device = tensor.device();
  } else {
    TORCH_CHECK(tensor.device() == call.device,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                call.device, " and ", tensor.device(), "! (when checking argument '", spec.name,
                "' of ", schema_.name, ")");
  }
  hasher.Add(kTensor | dtype << 8 | static_cast<uint64_t>(tensor.dim()) << 16);
  for (int64_t size : tensor.sizes()) hasher.Add(static_cast<uint64_t>(size));
  for (int64_t stride : tensor.strides()) hasher.Add(static_cast<uint64_t>(stride));
  if (spec.written) call.written.push_back(&tensor);
  if (!spec.output_only) call.inputs.push_back(&tensor);
}

void OpKernel::Gather(const c10::IValue* args, Call& call) const {
  Hasher hasher;
  for (size_t i = 0; i < schema_.args.size(); ++i) {
    const ArgSpec& spec = schema_.args[i];
    const c10::IValue& value = args[i];
    switch (spec.kind) {
      case ArgKind::kTensor:
        if (value.isNone()) {
          hasher.Add(kNone);
        } else {
          GatherTensor(value.toTensor(), spec, hasher, call);
        }
        break;
      case ArgKind::kTensorList: {
        const auto list = value.toListRef();
        hasher.Add(kList | list.size() << 8);
        for (const c10::IValue& element : list) {
          if (element.isNone()) {
            hasher.Add(kNone);
          } else {
            GatherTensor(element.toTensor(), spec, hasher, call);
          }
        }
        break;
      }
      case ArgKind::kNumber:
        AddNumber(value, spec.is_static, hasher);
        break;
      case ArgKind::kInt:
      case ArgKind::kDtype:
        hasher.Add(value.isNone() ? kNone : kInt);
        if (!value.isNone()) hasher.Add(static_cast<uint64_t>(value.toInt()));
        break;
      case ArgKind::kIntList: {
        if (value.isNone()) {
          hasher.Add(kNone);
          break;
        }
        const auto ints = IntsOf(value);
        hasher.Add(kInts | ints.size() << 8);
        for (int64_t x : ints) hasher.Add(static_cast<uint64_t>(x));
        break;
      }
      case ArgKind::kBool:
        hasher.Add(value.isNone() ? kNone : kBool | static_cast<uint64_t>(value.toBool()) << 8);
        break;
      case ArgKind::kString:
        hasher.Add(kString);
        if (!value.isNone()) hasher.AddBytes(value.toStringRef());
        break;
      case ArgKind::kDevice:
        if (!value.isNone() && call.device.index() < 0 && value.toDevice().has_index())
          call.device = value.toDevice();
        break;
      case ArgKind::kNumberList: {
        hasher.Add(value.isNone() ? kNone : kInts);
        if (value.isNone()) break;
        for (const c10::IValue& element : value.toListRef()) AddNumber(element, true, hasher);
        break;
      }
      case ArgKind::kGenerator:
      case ArgKind::kIgnored:
        break;
    }
  }
  if (call.device.index() < 0)
    call.device.set_index(static_cast<c10::DeviceIndex>(runtime::CurrentDevice()));
  if (schema_.writes) GatherOverlaps(call, hasher);
  hasher.Add(static_cast<uint64_t>(c10::typeMetaToScalarType(c10::get_default_dtype())));
  call.key = hasher.Finish();
}

// What is written must not overlap itself or, except exactly, what is read: as PyTorch checks it.
void OpKernel::GatherOverlaps(Call& call, Hasher& hasher) const {
  for (size_t w = 0; w < call.written.size(); ++w) {
    at::assert_no_internal_overlap(*call.written[w]);
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (call.inputs[i] == call.written[w]) {
        hasher.Add(kOverlap | w << 8 | i << 24);
        continue;
      }
      if (!call.inputs[i]->storage().is_alias_of(call.written[w]->storage())) continue;
      if (at::get_overlap_status(*call.written[w], *call.inputs[i]) == at::MemOverlapStatus::Full) {
        hasher.Add(kOverlap | w << 8 | i << 24);
      } else {
        at::assert_no_partial_overlap(*call.written[w], *call.inputs[i]);
      }
    }
  }
}

std::shared_ptr<const Plan> OpKernel::FindPlan(const Call& call) {
  std::lock_guard lock(mutex_);
  const auto it = plans_.find(call.key);
  return it == plans_.end() ? nullptr : it->second;
}

void OpKernel::Run(torch::jit::Stack* stack) {
  const size_t n = schema_.args.size();
  const c10::IValue* args = &(*stack)[stack->size() - n];
  Call call;
  Gather(args, call);
  std::shared_ptr<const Plan> plan = FindPlan(call);
  if (plan == nullptr) plan = MakePlan(args, call);
  if (plan->kind == PlanKind::kFallback) return CpuFallback(op_, stack);
  counter_.executed.fetch_add(1, std::memory_order_relaxed);
  if (plan->kind == PlanKind::kLibraryNow) {
    torch::jit::Stack returned = RunLibraryNow(args, call);
    torch::jit::drop(*stack, n);
    for (c10::IValue& value : returned) stack->push_back(std::move(value));
    return;
  }
  c10::SmallVector<at::Tensor, 4> results;
  AllocateResults(*plan, schema_, args, call.device, results);
  if (plan->executable != nullptr) {
    Guarded([&] { Launch(*plan, args, call, results); });
  } else if (plan->kind == PlanKind::kLibrary) {
    LaunchLibrary(args, call, results);
  }
  torch::jit::drop(*stack, n);
  for (at::Tensor& result : results) stack->emplace_back(std::move(result));
}

void OpKernel::Launch(const Plan& plan, const c10::IValue* args, const Call& call,
                      const c10::SmallVector<at::Tensor, 4>& results) const {
  const int device = call.device.index();
  runtime::Initialize();
  runtime::Stream& stream = runtime::CurrentStream(device);
  c10::SmallVector<platform::DeviceAddress, 16> operands;
  for (const at::Tensor* input : call.inputs) {
    operands.push_back(reinterpret_cast<platform::DeviceAddress>(input->const_data_ptr()));
  }
  for (const at::Tensor& result : results) {
    if (!result.defined()) continue;
    operands.push_back(reinterpret_cast<platform::DeviceAddress>(result.const_data_ptr()));
  }
  c10::SmallVector<uint64_t, 8> scalars;
  for (const ScalarSource& source : plan.scalars) {
    const c10::IValue& value =
        source.element < 0 ? args[source.arg]
                           : args[source.arg].toListRef()[static_cast<size_t>(source.element)];
    scalars.push_back(value.isTensor() ? CpuScalarWord(value.toTensor())
                                       : ScalarWord(value.toScalar()));
  }
  if (plan.random_count > 0) {
    std::optional<at::Generator> generator;
    for (size_t i = 0; i < schema_.args.size(); ++i) {
      if (schema_.args[i].kind == ArgKind::kGenerator && !args[i].isNone())
        generator = args[i].toGenerator();
    }
    const auto [seed, offset] =
        ReserveRandom(generator, device, static_cast<uint64_t>(plan.random_count));
    scalars.push_back(seed);
    scalars.push_back(offset);
  }
  auto context = plan.context;
  if (plan.executable->CanFail()) {
    auto located = std::make_shared<platform::LaunchContext>(*plan.context);
    located->call_site = PythonCallSite();
    context = std::move(located);
  }
  platform::DeviceAddress scratch = 0;
  if (plan.executable->scratch_bytes() > 0) {
    scratch =
        runtime::Allocate(device, static_cast<size_t>(plan.executable->scratch_bytes()), stream);
    operands.push_back(scratch);
  }
  stream.queue().Launch(plan.executable, operands, scalars, std::move(context));
  // The block's memory is reused only by later work of this stream.
  if (scratch != 0) runtime::Free(scratch);
}

}  // namespace neuron::aten
