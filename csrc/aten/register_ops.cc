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
  c10::RegistrationHandleRAII handle;
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
  const std::string full = name.name + (name.overload_name.empty() ? "" : "." + name.overload_name);
  if (Kernels().contains(full)) return;
  auto kernel = std::make_unique<OpKernel>(op, entry, library);
  OpKernel* raw = kernel.get();
  Kernels().emplace(
      full, Registered{raw, c10::Dispatcher::singleton().registerImpl(
                                name, c10::DispatchKey::PrivateUse1,
                                c10::KernelFunction::makeFromBoxedFunctor(std::move(kernel)),
                                std::nullopt, nullptr, "torch_neuronx")});
}

void RegisterForms(const lowering::Entry& entry) {
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
  const auto in_place = dispatcher.findSchema({base.name + "_", base.overload_name});
  if (in_place && IsInPlaceFormOf(in_place->schema(), op->schema()))
    Register(*in_place, entry, library);
  std::vector<std::string> overloads{"out"};
  if (!base.overload_name.empty()) overloads.insert(overloads.begin(), base.overload_name + "_out");
  for (const std::string& overload : overloads) {
    const auto out = dispatcher.findSchema({base.name, overload});
    if (!out || !IsOutFormOf(out->schema(), op->schema())) continue;
    Register(*out, entry, library);
    break;
  }
}

// Whether a form of an op has a kernel of its own for the CPU: others are composed of forms that
// do.
bool HasCpuKernel(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

// out= forms have names of many kinds here ("grad_input", "L"): each overload of the name is asked.
void RegisterLibraryForms(const LibraryOp& library,
                          const std::map<std::string, std::vector<std::string>>& overloads) {
  static const lowering::Entry no_lowering;
  auto& dispatcher = c10::Dispatcher::singleton();
  const c10::OperatorName base = ParseName(std::string(library.name));
  const auto op = dispatcher.findSchema(base);
  NEURON_CHECK(op.has_value(), "PyTorch has no operator ", library.name);
  if (Kernels().contains(base.name + (base.overload_name.empty() ? "" : "." + base.overload_name)))
    return;
  if (HasCpuKernel(*op)) Register(*op, no_lowering, &library);
  if (const auto in_place = dispatcher.findSchema({base.name + "_", base.overload_name});
      in_place && HasCpuKernel(*in_place))
    Register(*in_place, no_lowering, &library);
  for (const std::string& overload : overloads.at(base.name)) {
    const auto form = dispatcher.findSchema({base.name, overload});
    if (form && HasCpuKernel(*form) && IsOutFormOf(form->schema(), op->schema()))
      Register(*form, no_lowering, &library);
  }
}

}  // namespace

OpKernel& GetOpKernel(const std::string& name) {
  const auto it = Kernels().find(name);
  NEURON_CHECK(it != Kernels().end(), "no kernel is registered for ", name);
  return *it->second.kernel;
}

void RegisterOps() {
  for (const auto& [name, entry] : lowering::Table::Get().entries()) {
    if (!entry.graph_only) RegisterForms(entry);
  }
  std::map<std::string, std::vector<std::string>> overloads;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames())
    overloads[name.name].push_back(name.overload_name);
  for (const LibraryOp& library : LibraryOps()) RegisterLibraryForms(library, overloads);
}

}  // namespace neuron::aten
