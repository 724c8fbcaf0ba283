#include "lowering/context.h"

namespace neuron::lowering {

const Arg& Context::Find(std::string_view name) const {
  for (const auto& [key, arg] : args_) {
    if (key == name) return arg;
  }
  NEURON_THROW(kInternal, op_, " has no argument '", name, "'");
}

namespace {
template <typename T>
const T& As(const Arg& arg, std::string_view op, std::string_view name) {
  const T* value = std::get_if<T>(&arg);
  if (value == nullptr)
    NEURON_THROW(kInternal, op, ": argument '", name, "' is of another kind (", arg.index(), ")");
  return *value;
}
}  // namespace

bool Context::Has(std::string_view name) const {
  const Arg& arg = Find(name);
  if (const auto* tensor = std::get_if<TensorArg>(&arg)) return tensor->value != nullptr;
  return !std::holds_alternative<std::monostate>(arg);
}

const TensorArg& Context::Tensor(std::string_view name) const {
  const auto& tensor = As<TensorArg>(Find(name), op_, name);
  NEURON_CHECK(tensor.value != nullptr, op_, ": tensor '", name, "' is undefined");
  return tensor;
}

Op* Context::T(std::string_view name) const { return Tensor(name).value; }

Op* Context::OptionalT(std::string_view name) const { return Has(name) ? T(name) : nullptr; }

std::vector<TensorArg> Context::TensorList(std::string_view name) const {
  return As<std::vector<TensorArg>>(Find(name), op_, name);
}

std::vector<Op*> Context::List(std::string_view name) const {
  std::vector<Op*> out;
  for (const TensorArg& tensor : TensorList(name)) out.push_back(tensor.value);
  return out;
}

int64_t Context::Int(std::string_view name) const { return As<int64_t>(Find(name), op_, name); }

Dims Context::Ints(std::string_view name) const {
  const Arg& arg = Find(name);
  if (const auto* one = std::get_if<int64_t>(&arg)) return {*one};
  return As<Dims>(arg, op_, name);
}

Dims Context::IntsOr(std::string_view name, Dims otherwise) const {
  return Has(name) ? Ints(name) : otherwise;
}

bool Context::Bool(std::string_view name) const { return As<bool>(Find(name), op_, name); }

std::string Context::String(std::string_view name) const {
  return As<std::string>(Find(name), op_, name);
}

const ScalarArg& Context::Scalar(std::string_view name) const {
  return As<ScalarArg>(Find(name), op_, name);
}

Op* Context::S(std::string_view name, DType dtype) { return b.Convert(Scalar(name).value, dtype); }

bool Context::Is(std::string_view name, double value) const {
  const auto& known = Scalar(name).known;
  return known.has_value() && *known == value;
}

double Context::Static(std::string_view name) const {
  const auto& known = Scalar(name).known;
  NEURON_CHECK(known.has_value(), op_, ": '", name, "' is not listed as a static argument");
  return *known;
}

double Context::StaticOr(std::string_view name, double otherwise) const {
  return Has(name) ? Static(name) : otherwise;
}

const ir::Type& Context::Result(size_t i) const {
  NEURON_CHECK(i < results_.size(), op_, " has ", results_.size(), " results, asked for number ",
               i);
  NEURON_CHECK(results_[i].has_value(), op_, ": result ", i, " is not wanted");
  return *results_[i];
}

void Context::Return(std::vector<Op*> values) {
  NEURON_CHECK(values.size() == results_.size(), op_, " returns ", values.size(), " of ",
               results_.size(), " results");
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = results_[i].has_value()
                    ? b.Broadcast(b.Convert(values[i], results_[i]->dtype), results_[i]->dims)
                    : nullptr;
  }
  returned_ = std::move(values);
}

}  // namespace neuron::lowering
