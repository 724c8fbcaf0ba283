#include <algorithm>

#include "ir/verify_rules.h"

namespace neuron::ir {
namespace {

enum class Kind { kInt, kDouble, kString, kInts, kNumber };

constexpr struct {
  std::string_view name;
  Kind kind;
} kKinds[] = {
    {"index", Kind::kInt},         {"dim", Kind::kInt},        {"wrap", Kind::kInt},
    {"transposed", Kind::kInt},    {"groups", Kind::kInt},     {"is_causal", Kind::kInt},
    {"word", Kind::kInt},          {"descending", Kind::kInt}, {"direction", Kind::kString},
    {"kind", Kind::kString},       {"mode", Kind::kString},    {"alpha", Kind::kDouble},
    {"beta", Kind::kDouble},       {"scale", Kind::kDouble},   {"value", Kind::kNumber},
    {"strides", Kind::kInts},      {"dims", Kind::kInts},      {"permutation", Kind::kInts},
    {"start", Kind::kInts},        {"limit", Kind::kInts},     {"stride", Kind::kInts},
    {"low", Kind::kInts},          {"high", Kind::kInts},      {"interior", Kind::kInts},
    {"padding", Kind::kInts},      {"dilation", Kind::kInts},  {"output_padding", Kind::kInts},
    {"lhs_batch", Kind::kInts},    {"rhs_batch", Kind::kInts}, {"lhs_contract", Kind::kInts},
    {"rhs_contract", Kind::kInts}, {"of", Kind::kString},      {"dropout", Kind::kDouble},
};

// Why the value is not of the kind that its name asks for; empty if it is.
std::string_view WrongKind(std::string_view name, const Attribute& value) {
  const auto* row = std::find_if(std::begin(kKinds), std::end(kKinds),
                                 [&](const auto& k) { return k.name == name; });
  NEURON_CHECK(row != std::end(kKinds), "opcodes.inc names the attribute '", name,
               "', whose kind is unknown");
  switch (row->kind) {
    case Kind::kInt:
      return std::holds_alternative<int64_t>(value) ? "" : "must be an int";
    case Kind::kDouble:
      return std::holds_alternative<double>(value) ? "" : "must be a double";
    case Kind::kString:
      return std::holds_alternative<std::string>(value) ? "" : "must be a string";
    case Kind::kInts:
      return std::holds_alternative<Dims>(value) ? "" : "must be a list";
    case Kind::kNumber:
      return value.index() <= 1 ? "" : "must be an int or a double";
  }
  return "";
}

// All required attributes, no others, each of its kind.
void VerifyAttributes(const Op& op) {
  size_t known = 0;
  std::string_view rest = Info(op.code).attributes;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    std::string_view name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const bool optional = name.back() == '?';
    if (optional) name.remove_suffix(1);
    const auto it = op.attributes.find(name);
    Require(op, optional || it != op.attributes.end(), "the attribute '", name, "' is missing");
    if (it == op.attributes.end()) continue;
    ++known;
    const std::string_view wrong = WrongKind(name, it->second);
    Require(op, wrong.empty(), "the attribute '", name, "' ", wrong);
  }
  Require(op, known == op.attributes.size(), "it takes the attributes '", Info(op.code).attributes,
          "' and no others");
}

void VerifyOperands(const Graph& graph, const Op& op, size_t position) {
  // Before anything prints the operation: printing follows the pointers.
  for (const Op* operand : op.operands) {
    NEURON_CHECK(operand != nullptr, "operation ", position, " (", Info(op.code).name,
                 ") has a null operand");
  }
  Require(op, op.id == static_cast<int>(position), "it stands at position ", position,
          ", which must be its number");
  for (const Op* operand : op.operands) {
    const bool earlier = operand->id >= 0 && operand->id < op.id;
    Require(op, earlier && graph.ops()[static_cast<size_t>(operand->id)].get() == operand, "%",
            operand->id, " is not an earlier operation of this graph");
  }
  const int expected = Info(op.code).operands;
  Require(op, expected < 0 || op.operands.size() == static_cast<size_t>(expected), "it takes ",
          expected, " operands");
  int64_t bytes = ByteSize(op.type.dtype);
  for (const int64_t d : op.type.dims) {
    Require(op, d >= 0, "sizes must not be negative");
    Require(op, !__builtin_mul_overflow(bytes, std::max<int64_t>(1, d), &bytes),
            "its bytes must fit 63 bits");
  }
}

void VerifyOp(const Op& op) {
  if (op.code <= OpCode::kIota) return VerifySource(op);
  if (op.code <= OpCode::kFma) return VerifyElementwise(op);
  if (op.code <= OpCode::kReverse) return VerifyShape(op);
  if (op.code <= OpCode::kScatterNd) return VerifyIndirect(op);
  if (op.code <= OpCode::kArgSort) return VerifyReduction(op);
  VerifyEngine(op);
}

// Arguments are numbered in the order of their operations.
void VerifyArguments(const Graph& graph) {
  size_t parameters = 0;
  int64_t scalars = 0;
  for (const auto& op : graph.ops()) {
    if (op->code == OpCode::kParameter) {
      const bool listed =
          parameters < graph.parameters().size() && graph.parameters()[parameters] == op.get();
      Require(*op, listed && op->Int("index") == static_cast<int64_t>(parameters),
              "it is not parameter ", parameters, " of the graph");
      ++parameters;
    } else if (op->code == OpCode::kScalar) {
      Require(*op, op->Int("index") == scalars, "it is scalar ", scalars, " of the graph");
      ++scalars;
    }
  }
  NEURON_CHECK(parameters == graph.parameters().size() && scalars == graph.num_scalars(), "graph @",
               graph.name(), " has ", parameters, " of ", graph.parameters().size(),
               " parameters and ", scalars, " of ", graph.num_scalars(), " scalars");
}

void VerifyOutput(const Graph& graph, size_t index) {
  const Output& output = graph.outputs()[index];
  const Op* value = output.value;
  NEURON_CHECK(value != nullptr, "output ", index, " of graph @", graph.name(), " is null");
  const bool member = value->id >= 0 && value->id < static_cast<int>(graph.ops().size()) &&
                      graph.ops()[static_cast<size_t>(value->id)].get() == value;
  NEURON_CHECK(member, "output ", index, " of graph @", graph.name(),
               " is not an operation of this graph");
  const std::string where = StrCat("output ", index, ": ");
  Require(*value, output.strides.size() == value->type.dims.size(), where, "it has ",
          output.strides.size(), " strides for ", value->type.dims.size(), " dimensions");
  for (const int64_t s : output.strides)
    Require(*value, s >= 0, where, "strides must not be negative");
  const int alias = output.aliases_parameter;
  if (alias == -1) return;
  Require(*value, alias >= 0 && alias < static_cast<int>(graph.parameters().size()), where,
          "it aliases parameter ", alias, " of ", graph.parameters().size());
  const Op* parameter = graph.parameters()[static_cast<size_t>(alias)];
  Require(*value, parameter->type == value->type, where, "it aliases parameter ", alias,
          " of another type, ", ToString(parameter->type));
  Require(*value, parameter->Ints("strides") == output.strides, where, "it aliases parameter ",
          alias, " with other strides");
}

}  // namespace

void RequireDType(const Op& op, const Type& type, unsigned allowed, std::string_view what) {
  const DType t = type.dtype;
  const unsigned set = t == DType::kBool ? kBools
                       : IsIntegral(t)   ? kInts
                       : IsFloat(t)      ? kFloats
                                         : kComplexes;
  if ((set & allowed) != 0) return;
  std::string names;
  const auto add = [&](unsigned member, const char* name) {
    if ((allowed & member) != 0) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(kBools, "b8");
  add(kInts, "integers");
  add(kFloats, "floats");
  add(kComplexes, "complex numbers");
  Require(op, false, what, " of type ", ToString(type), ", allowed: ", names);
}

void RequireResult(const Op& op, const Type& expected) {
  if (op.type == expected) return;
  Require(op, false, "its type must be ", ToString(expected));
}

void RequireDim(const Op& op, int64_t dim, int rank, std::string_view attribute) {
  Require(op, dim >= 0 && dim < rank, attribute, ": ", dim, " is not a dimension of rank ", rank);
}

void RequireDims(const Op& op, const Dims& dims, int rank, std::string_view attribute) {
  for (size_t i = 0; i < dims.size(); ++i) {
    RequireDim(op, dims[i], rank, attribute);
    Require(op,
            std::find(dims.begin(), dims.begin() + static_cast<int64_t>(i), dims[i]) ==
                dims.begin() + static_cast<int64_t>(i),
            attribute, ": ", dims[i], " is named twice");
  }
}

void RequireCount(const Op& op, std::string_view attribute, size_t count) {
  Require(op, op.Ints(attribute).size() == count, attribute, " must have ", count, " entries");
}

void RequireOneOf(const Op& op, std::string_view attribute,
                  std::initializer_list<std::string_view> allowed) {
  if (std::find(allowed.begin(), allowed.end(), op.String(attribute)) != allowed.end()) return;
  std::string names;
  for (const std::string_view name : allowed)
    names += (names.empty() ? "" : " ") + std::string(name);
  Require(op, false, attribute, " must be one of ", names);
}

void RequireFlag(const Op& op, std::string_view attribute) {
  const int64_t value = op.Int(attribute);
  Require(op, value == 0 || value == 1, attribute, " must be 0 or 1");
}

void Verify(const Graph& graph) {
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = *graph.ops()[i];
    VerifyOperands(graph, op, i);
    VerifyAttributes(op);
    VerifyOp(op);
  }
  VerifyArguments(graph);
  for (size_t i = 0; i < graph.outputs().size(); ++i) VerifyOutput(graph, i);
}

}  // namespace neuron::ir
