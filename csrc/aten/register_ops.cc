// Registers the boxed kernel for every lowered op and its forms.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <map>

#include "aten/op_kernel.h"

namespace neuron::aten {
namespace {

struct Registered {
  OpKernel* kernel;
  std::unique_ptr<OpKernel> owned;  // unless the dispatcher has it
  std::optional<c10::RegistrationHandleRAII> handle;
};

std::map<std::string, Registered>& Kernels() {
  static auto* const kernels =
      new std::map<std::string, Registered>();  // never destroyed: torch may call at exit
  return *kernels;
}

c10::OperatorName ParseName(const std::string& name) {
  const bool qualified = name.find("::") != std::string::npos;
  const std::string full = qualified ? name : "aten::" + name;
  const size_t dot = full.find('.');
  if (dot == std::string::npos) return {full, ""};
  return {full.substr(0, dot), full.substr(dot + 1)};
}

std::string FullName(const c10::OperatorName& name) {
  return name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
}

// Same arguments as the functional form, plus out= ones.
bool IsOutFormOf(const c10::FunctionSchema& out, const c10::FunctionSchema& base) {
  std::vector<const c10::Argument*> rest;
  for (const c10::Argument& arg : out.arguments()) {
    if (arg.alias_info() == nullptr || !arg.alias_info()->isWrite()) rest.push_back(&arg);
  }
  if (rest.size() == out.arguments().size()) return false;
  std::vector<const c10::Argument*> wanted;
  for (const c10::Argument& arg : base.arguments()) {
    // Factories lose the options in their out= form.
    const bool option = arg.kwarg_only() && (arg.name() == "dtype" || arg.name() == "layout" ||
                                             arg.name() == "device" || arg.name() == "pin_memory");
    if (!option || out.argumentIndexWithName(arg.name()).has_value()) wanted.push_back(&arg);
  }
  if (rest.size() != wanted.size()) return false;
  for (size_t i = 0; i < rest.size(); ++i) {
    if (*rest[i]->type() != *wanted[i]->type() || rest[i]->name() != wanted[i]->name())
      return false;
  }
  return true;
}

// Same arguments: pow_.Scalar is not pow.Scalar's, whose number is the base.
bool IsInPlaceFormOf(const c10::FunctionSchema& in_place, const c10::FunctionSchema& base) {
  const auto &mine = in_place.arguments(), &wanted = base.arguments();
  return std::equal(mine.begin(), mine.end(), wanted.begin(), wanted.end(),
                    [](const c10::Argument& a, const c10::Argument& b) {
                      return a.name() == b.name() && *a.type() == *b.type();
                    });
}

void Register(const c10::OperatorHandle& op, const lowering::Entry& entry,
              const LibraryOp* library) {
  const c10::OperatorName& name = op.operator_name();
  const std::string full = FullName(name);
  if (Kernels().contains(full)) return;
  auto kernel = std::make_unique<OpKernel>(op, entry, library);
  OpKernel* raw = kernel.get();
  if (entry.called) {
    Kernels().emplace(full, Registered{raw, std::move(kernel), std::nullopt});
    return;
  }
  Kernels().emplace(full,
                    Registered{raw, nullptr,
                               c10::Dispatcher::singleton().registerImpl(
                                   name, c10::DispatchKey::PrivateUse1,
                                   c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)),
                                   std::nullopt, nullptr, "torch_neuronx")});
}

using Overloads = std::map<std::string, std::vector<std::string>>;

// The in-place and out= forms of an op; the latter have names of many kinds ("grad_input", "L").
std::vector<c10::OperatorHandle> FormsOf(const c10::OperatorHandle& op,
                                         const Overloads& overloads) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorName& base = op.operator_name();
  std::vector<c10::OperatorHandle> forms;
  const auto in_place = dispatcher.findSchema({base.name + "_", base.overload_name});
  if (in_place && IsInPlaceFormOf(in_place->schema(), op.schema())) forms.push_back(*in_place);
  for (const std::string& overload : overloads.at(base.name)) {
    const auto out = dispatcher.findSchema({base.name, overload});
    if (out && IsOutFormOf(out->schema(), op.schema())) forms.push_back(*out);
  }
  return forms;
}

void RegisterForms(const lowering::Entry& entry, const Overloads& overloads) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorName base = ParseName(entry.name);
  const auto op = dispatcher.findSchema(base);
  NEURON_CHECK(op.has_value(), "PyTorch has no operator ", entry.name);
  const LibraryOp* library = FindLibraryOp(entry.name);
  Register(*op, entry, library);
  for (const std::string& alias : entry.aliases) {
    const auto form = dispatcher.findSchema(ParseName(alias));
    NEURON_CHECK(form.has_value(), "PyTorch has no operator ", alias);
    Register(*form, entry, library);
  }
  if (base.name.back() == '_' || base.name.starts_with("neuron::")) return;
  for (const c10::OperatorHandle& form : FormsOf(*op, overloads)) {
    // PyTorch composes generated forms of the functional one and a copy; they lack meta kernels.
    if (!form.hasTag(at::Tag::generated)) Register(form, entry, library);
  }
}

// Whether a form of an op has a kernel of its own for the CPU: others are composed of forms that
// do.
bool HasCpuKernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

void RegisterLibraryForms(const LibraryOp& library, const Overloads& overloads) {
  static const lowering::Entry no_lowering;
  const c10::OperatorName base = ParseName(std::string(library.name));
  const auto op = c10::Dispatcher::singleton().findSchema(base);
  NEURON_CHECK(op.has_value(), "PyTorch has no operator ", library.name);
  if (Kernels().contains(FullName(base))) return;
  if (HasCpuKernel(*op)) Register(*op, no_lowering, &library);
  for (const c10::OperatorHandle& form : FormsOf(*op, overloads)) {
    if (HasCpuKernel(form)) Register(form, no_lowering, &library);
  }
}

}  // namespace

OpKernel& GetOpKernel(const std::string& name) {
  const auto it = Kernels().find(name);
  NEURON_CHECK(it != Kernels().end(), "no kernel is registered for ", name);
  return *it->second.kernel;
}

void RegisterOps() {
  Overloads overloads;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
    overloads[name.name].push_back(name.overload_name);
  for (const auto& [name, entry] : lowering::Table::Get().entries()) {
    if (!entry.graph_only) RegisterForms(entry, overloads);
  }
  for (const LibraryOp& library : LibraryOps()) RegisterLibraryForms(library, overloads);
}

}  // namespace neuron::aten
