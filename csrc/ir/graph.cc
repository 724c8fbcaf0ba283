#include "ir/graph.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace neuron::ir {
namespace {

constexpr OpInfo kInfos[] = {
#define NEURON_OP(Id, name, operands, attributes, doc) {name, operands, attributes, doc},
#include "ir/opcodes.inc"
#undef NEURON_OP
};

template <typename T>
const T& Get(const Op& op, std::string_view name) {
  const auto it = op.attributes.find(name);
  const T* value = it == op.attributes.end() ? nullptr : std::get_if<T>(&it->second);
  NEURON_CHECK(value != nullptr, Info(op.code).name, " has no attribute '", name, "' of this kind");
  return *value;
}

}  // namespace

const OpInfo& Info(OpCode code) { return kInfos[static_cast<int>(code)]; }

std::optional<OpCode> FindOpCode(std::string_view name) {
  static const std::unordered_map<std::string_view, OpCode> codes = [] {
    std::unordered_map<std::string_view, OpCode> out;
    for (int i = 0; i < kNumOpCodes; ++i) out.emplace(kInfos[i].name, static_cast<OpCode>(i));
    return out;
  }();
  const auto it = codes.find(name);
  return it == codes.end() ? std::nullopt : std::optional(it->second);
}

int64_t Type::NumElements() const {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

int64_t Op::Int(std::string_view name) const { return Get<int64_t>(*this, name); }
double Op::Double(std::string_view name) const { return Get<double>(*this, name); }
const Dims& Op::Ints(std::string_view name) const { return Get<Dims>(*this, name); }
const std::string& Op::String(std::string_view name) const { return Get<std::string>(*this, name); }

Op* Graph::Add(OpCode code, Type type, std::vector<Op*> operands,
               std::map<std::string, Attribute, std::less<>> attributes) {
  auto op = std::make_unique<Op>();
  op->code = code;
  op->type = std::move(type);
  op->operands = std::move(operands);
  op->attributes = std::move(attributes);
  op->id = static_cast<int>(ops_.size());
  op->region = region_;
  ops_.push_back(std::move(op));
  return ops_.back().get();
}

Op* Graph::AddParameter(Type type, Dims strides) {
  const auto index = static_cast<int64_t>(parameters_.size());
  Op* op = Add(OpCode::kParameter, std::move(type), {},
               {{"index", index}, {"strides", std::move(strides)}});
  parameters_.push_back(op);
  return op;
}

Op* Graph::AddScalar(DType dtype) {
  const auto index = static_cast<int64_t>(num_scalars_++);
  return Add(OpCode::kScalar, {dtype, {}}, {}, {{"index", index}});
}

void Graph::AddOutput(Op* value, Dims strides, int aliases_parameter) {
  outputs_.push_back({value, std::move(strides), aliases_parameter});
}

void Graph::SetRegion(std::string name) {
  region_ = name.empty() ? -1 : static_cast<int>(regions_.size());
  if (!name.empty()) regions_.push_back(std::move(name));
}

void Graph::NameRegion(int index, std::string_view name) {
  const auto i = static_cast<size_t>(index);
  if (i >= regions_.size()) regions_.resize(i + 1);
  if (regions_[i].empty()) regions_[i] = name;
  if (regions_[i] != name)
    NEURON_THROW(kInvalidArgument, "region ", index, " is ", regions_[i], ", not ", name);
}

void Graph::RemoveDeadOps() {
  std::unordered_set<const Op*> live;
  std::vector<const Op*> pending;
  for (const Output& output : outputs_) pending.push_back(output.value);
  while (!pending.empty()) {
    const Op* op = pending.back();
    pending.pop_back();
    if (!live.insert(op).second) continue;
    pending.insert(pending.end(), op->operands.begin(), op->operands.end());
  }
  std::erase_if(ops_, [&](const std::unique_ptr<Op>& op) {
    return op->code != OpCode::kParameter && op->code != OpCode::kScalar &&
           !live.contains(op.get());
  });
  int id = 0;
  for (const auto& op : ops_) op->id = id++;
}

Dims ContiguousStrides(const Dims& dims) {
  Dims strides(dims.size(), 1);
  for (int d = static_cast<int>(dims.size()) - 2; d >= 0; --d) {
    strides[d] = strides[d + 1] * std::max<int64_t>(1, dims[d + 1]);
  }
  return strides;
}

}  // namespace neuron::ir
