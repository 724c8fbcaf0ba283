#include "ir/stablehlo_emit.h"

#include <algorithm>
#include <limits>

#include "ir/stablehlo_decompose.h"
#include "ir/stablehlo_text.h"

namespace neuron::ir::hlo {
namespace {

// Operations that StableHLO has under this name, with operands and result of one type.
std::string_view SimpleName(OpCode code) {
  switch (code) {
    case OpCode::kExp:
    case OpCode::kExpm1:
    case OpCode::kLog1p:
    case OpCode::kSin:
    case OpCode::kCos:
    case OpCode::kTan:
    case OpCode::kAbs:
    case OpCode::kNegate:
    case OpCode::kSign:
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kRoundNearestEven:
    case OpCode::kSqrt:
    case OpCode::kRsqrt:
    case OpCode::kLog:
    case OpCode::kTanh:
    case OpCode::kLogistic:
    case OpCode::kNot:
    case OpCode::kAdd:
    case OpCode::kSubtract:
    case OpCode::kMultiply:
    case OpCode::kDivide:
    case OpCode::kRemainder:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kPower:
    case OpCode::kAtan2:
    case OpCode::kAnd:
    case OpCode::kOr:
    case OpCode::kXor:
    case OpCode::kShiftLeft:
    case OpCode::kShiftRightArithmetic:
    case OpCode::kShiftRightLogical:
      return Info(code).name;
    default:
      return "";
  }
}

// A copy of operations [begin, end) as a graph of its own: what they take from outside becomes its
// parameters, but for constants, which are copied.
struct Outline {
  Graph graph;
  std::vector<const Op*> inputs, outputs;

  Outline(const Graph& from, size_t begin, size_t end) : graph("outline") {
    std::unordered_map<const Op*, Op*> copies;
    const auto inside = [&](const Op* op) {
      return static_cast<size_t>(op->id) >= begin && static_cast<size_t>(op->id) < end;
    };
    for (size_t i = begin; i < end; ++i) {
      for (const Op* operand : from.ops()[i]->operands) {
        if (inside(operand) || copies.contains(operand)) continue;
        if (operand->operands.empty() && operand->code != OpCode::kParameter &&
            operand->code != OpCode::kScalar)
          continue;
        inputs.push_back(operand);
        copies[operand] = graph.AddParameter(operand->type, ContiguousStrides(operand->type.dims));
      }
    }
    const auto copy = [&](const Op* op) {
      std::vector<Op*> operands;
      for (const Op* operand : op->operands) operands.push_back(copies.at(operand));
      copies[op] = graph.Add(op->code, op->type, operands, op->attributes);
    };
    for (size_t i = begin; i < end; ++i) {
      for (const Op* operand : from.ops()[i]->operands) {
        if (!copies.contains(operand)) copy(operand);
      }
      copy(from.ops()[i].get());
    }
    for (size_t i = begin; i < end; ++i) {
      const Op* op = from.ops()[i].get();
      if (UsedFrom(from, op, end)) {
        outputs.push_back(op);
        graph.AddOutput(copies.at(op), ContiguousStrides(op->type.dims));
      }
    }
  }

  static bool UsedFrom(const Graph& graph, const Op* op, size_t end) {
    for (const Output& output : graph.outputs()) {
      if (output.value == op) return true;
    }
    for (size_t i = end; i < graph.ops().size(); ++i) {
      const auto& operands = graph.ops()[i]->operands;
      if (std::find(operands.begin(), operands.end(), op) != operands.end()) return true;
    }
    return false;
  }
};

// The end of the run of operations that starts at `begin` and has its region; `begin` if there is
// no region or if other operations of it stand elsewhere.
size_t RegionEnd(const Graph& graph, size_t begin) {
  const int region = graph.ops()[begin]->region;
  if (region < 0) return begin;
  size_t end = begin;
  while (end < graph.ops().size() && graph.ops()[end]->region == region) ++end;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    if ((i < begin || i >= end) && graph.ops()[i]->region == region) return begin;
  }
  return end;
}

}  // namespace

std::string Library::Function(const Graph& graph, std::string_view name) {
  const std::string key = Print(graph);
  if (const auto it = symbols_.find(key); it != symbols_.end()) return it->second;
  const std::string symbol = Symbol(StrCat(name, ".", symbols_.size()));
  symbols_.emplace(key, symbol);
  Names arguments, parameters, types;
  for (const Op* parameter : graph.parameters()) {
    arguments.push_back(StrCat("%arg", arguments.size()));
    parameters.push_back(StrCat(arguments.back(), ": ", TypeName(parameter->type)));
  }
  for (const Output& output : graph.outputs()) types.push_back(TypeName(output.value->type));
  Emitter emitter(*this);
  const Names results = emitter.EmitGraph(graph, arguments);
  texts_.push_back(StrCat("  func.func private ", symbol, "(", Join(parameters), ") -> (",
                          Join(types), ") {\n", emitter.text(), "    return ", Join(results), " : ",
                          Join(types), "\n  }\n"));
  return symbol;
}

Names Emitter::EmitGraph(const Graph& graph, const Names& arguments) {
  std::unordered_map<const Op*, std::string> names;
  for (size_t i = 0; i < graph.ops().size(); ++i) {
    const Op& op = *graph.ops()[i];
    if (op.code == OpCode::kParameter) {
      names[&op] = arguments.at(static_cast<size_t>(op.Int("index")));
      continue;
    }
    if (op.code == OpCode::kScalar) {
      names[&op] = arguments.at(graph.parameters().size() + static_cast<size_t>(op.Int("index")));
      continue;
    }
    const size_t end = RegionEnd(graph, i);
    if (end > i) {
      EmitRegion(graph, i, end, names);
      i = end - 1;
      continue;
    }
    Names operands;
    for (const Op* operand : op.operands) operands.push_back(names.at(operand));
    names[&op] = Emit(op, operands);
  }
  Names out;
  for (const Output& output : graph.outputs()) out.push_back(names.at(output.value));
  return out;
}

void Emitter::EmitRegion(const Graph& graph, size_t begin, size_t end,
                         std::unordered_map<const Op*, std::string>& names) {
  Outline outline(graph, begin, end);
  if (outline.outputs.empty()) return;
  Names arguments;
  for (const Op* input : outline.inputs) arguments.push_back(names.at(input));
  const std::string& name = graph.regions()[static_cast<size_t>(graph.ops()[begin]->region)];
  const Names results = EmitComposite(name, "", outline.graph, arguments);
  for (size_t i = 0; i < results.size(); ++i) names[outline.outputs[i]] = results[i];
}

Names Emitter::EmitComposite(std::string_view name, const std::string& attributes,
                             const Graph& body, const Names& arguments) {
  const std::string symbol = library_.Function(body, name);
  std::vector<Type> from, to;
  for (const Op* parameter : body.parameters()) from.push_back(parameter->type);
  for (const Output& output : body.outputs()) to.push_back(output.value->type);
  const std::string result = Fresh();
  Raw(StrCat(result, to.size() > 1 ? StrCat(":", to.size()) : "", " = stablehlo.composite ",
             Quote(name), " ", Join(arguments), " {composite_attributes = {", attributes,
             "}, decomposition = ", symbol, "} : (", TypeNames(from), ") -> (", TypeNames(to),
             ")"));
  if (to.size() == 1) return {result};
  Names names;
  for (size_t i = 0; i < to.size(); ++i) names.push_back(StrCat(result, "#", i));
  return names;
}

std::string Emitter::Emit(const Op& op, const Names& a) {
  const auto decomposition = Decompose(op);
  if (!decomposition) return EmitDirect(op, a);
  if (decomposition->composite.empty()) return EmitGraph(decomposition->graph, a)[0];
  return EmitComposite(decomposition->composite, decomposition->attributes, decomposition->graph,
                       a)[0];
}

// StableHLO does not say what a division by 0 gives, nor one that overflows: the smallest number by
// -1. Here they are 0, and the number negated with nothing left.
std::string Emitter::EmitDivision(const Op& op, const Names& a) {
  const Type& type = op.type;
  const std::string zero = Constant(type, int64_t{0}), one = Constant(type, int64_t{1});
  const std::string by_zero = Compare("EQ", a[1], zero, type);
  std::string divisor = Select(by_zero, one, a[1], type);
  if (!IsSigned(type.dtype))
    return Select(by_zero, zero, Simple(Info(op.code).name, {a[0], divisor}, type), type);
  const std::string flips = Compare("EQ", a[1], Constant(type, int64_t{-1}), type);
  divisor = Select(flips, one, divisor, type);
  const std::string usual = Simple(Info(op.code).name, {a[0], divisor}, type);
  const std::string flipped = op.code == OpCode::kDivide ? Simple("negate", {a[0]}, type) : zero;
  return Select(by_zero, zero, Select(flips, flipped, usual, type), type);
}

std::string Emitter::EmitDirect(const Op& op, const Names& a) {
  const bool divides = op.code == OpCode::kDivide || op.code == OpCode::kRemainder;
  if (divides && IsIntegral(op.type.dtype)) return EmitDivision(op, a);
  if (const std::string_view simple = SimpleName(op.code); !simple.empty())
    return Simple(simple, a, op.type);
  const auto list = [&](const char* attribute) { return "[" + List(op.Ints(attribute)) + "]"; };
  const auto shaped = [&](const std::string& head) {
    std::vector<Type> from;
    for (const Op* operand : op.operands) from.push_back(operand->type);
    return Line(StrCat("stablehlo.", head, " : (", TypeNames(from), ") -> ", TypeName(op.type)));
  };
  switch (op.code) {
    case OpCode::kConstant:
    case OpCode::kShapeConstant:
      return Constant(op.type, op.attributes.find("value")->second);
    case OpCode::kIota:
      return Iota(op.type, static_cast<size_t>(op.Int("dim")));
    case OpCode::kConvert:
      return Convert(a[0], op.operands[0]->type, op.type.dtype);
    case OpCode::kBitcastConvert:
      return shaped("bitcast_convert " + a[0]);
    case OpCode::kIsNan:
      return Compare("NE", a[0], a[0], op.operands[0]->type);
    case OpCode::kCompare:
      return Compare(op.String("direction"), a[0], a[1], op.operands[0]->type);
    case OpCode::kSelect:
      return Select(a[0], a[1], a[2], op.type);
    case OpCode::kBroadcastInDim:
      return shaped(StrCat("broadcast_in_dim ", a[0], ", dims = ", list("dims")));
    case OpCode::kReshape:
      return shaped("reshape " + a[0]);
    case OpCode::kTranspose:
      return shaped(StrCat("transpose ", a[0], ", dims = ", list("permutation")));
    case OpCode::kReverse:
      return Line(
          StrCat("stablehlo.reverse ", a[0], ", dims = ", list("dims"), " : ", TypeName(op.type)));
    case OpCode::kSlice: {
      Names ranges;
      for (size_t d = 0; d < op.Ints("start").size(); ++d) {
        ranges.push_back(
            StrCat(op.Ints("start")[d], ":", op.Ints("limit")[d], ":", op.Ints("stride")[d]));
      }
      return shaped(StrCat("slice ", a[0], " [", Join(ranges), "]"));
    }
    case OpCode::kPad:
      return shaped(StrCat("pad ", a[0], ", ", a[1], ", low = ", list("low"),
                           ", high = ", list("high"), ", interior = ", list("interior")));
    case OpCode::kConcatenate:
      return shaped(StrCat("concatenate ", Join(a), ", dim = ", op.Int("dim")));
    case OpCode::kDotGeneral:
      return EmitDot(op, a);
    case OpCode::kConvolution:
      return EmitConvolution(op, a);
    case OpCode::kConvolutionWeightGrad:
      return EmitWeightGrad(op, a);
    case OpCode::kTake:
      return EmitTake(op, a);
    case OpCode::kTakeAlong:
      return EmitTakeAlong(op, a);
    case OpCode::kTakeNd:
      return EmitTakeNd(op, a);
    case OpCode::kScatter:
      return EmitScatter(op, a);
    case OpCode::kScatterNd:
      return EmitScatterNd(op, a);
    case OpCode::kReduce:
      return EmitReduce(op, a);
    case OpCode::kSort:
    case OpCode::kArgSort:
      return EmitSort(op, a);
    default:
      NEURON_THROW(kUnsupported, "StableHLO has no form of ", Info(op.code).name, " of ",
                   ToString(op.type), ": ", ToString(op));
  }
}

std::string Emitter::Fresh() { return StrCat("%", next_++); }

void Emitter::Raw(std::string_view line) { text_ += StrCat(indent_, line, "\n"); }

std::string Emitter::Line(std::string_view rhs) {
  const std::string name = Fresh();
  Raw(StrCat(name, " = ", rhs));
  return name;
}

std::string Emitter::Simple(std::string_view name, const Names& a, const Type& type) {
  return Line(StrCat("stablehlo.", name, " ", Join(a), " : ", TypeName(type)));
}

std::string Emitter::Convert(const std::string& value, const Type& from, DType to) {
  if (from.dtype == to) return value;
  return Line(StrCat("stablehlo.convert ", value, " : (", TypeName(from), ") -> ",
                     TypeName({to, from.dims})));
}

std::string Emitter::Constant(const Type& type, const Attribute& value) {
  return Line("stablehlo.constant " + Splat(type, value));
}

std::string Emitter::Compare(std::string_view direction, const std::string& x, const std::string& y,
                             const Type& type) {
  const char* kind = IsFloat(type.dtype) || IsComplex(type.dtype) ? "FLOAT"
                     : IsSigned(type.dtype)                       ? "SIGNED"
                                                                  : "UNSIGNED";
  return Line(StrCat("stablehlo.compare ", direction, ", ", x, ", ", y, ", ", kind, " : (",
                     TypeNames({type, type}), ") -> ", TypeName({DType::kBool, type.dims})));
}

std::string Emitter::Select(const std::string& condition, const std::string& x,
                            const std::string& y, const Type& type) {
  return Line(StrCat("stablehlo.select ", condition, ", ", x, ", ", y, " : ",
                     TypeNames({{DType::kBool, type.dims}, type})));
}

std::string Emitter::Reshape(const std::string& x, const Type& from, const Dims& to) {
  if (from.dims == to) return x;
  return Line(
      StrCat("stablehlo.reshape ", x, " : (", TypeName(from), ") -> ", TypeName({from.dtype, to})));
}

std::string Emitter::Iota(const Type& type, size_t dim) {
  return Line(StrCat("stablehlo.iota dim = ", dim, " : ", TypeName(type)));
}

std::string Emitter::Before(const std::string& x, const std::string& y, const Type& type,
                            bool larger, bool nan_first) {
  const std::string nearer = Compare(larger ? "GT" : "LT", x, y, type);
  if (!IsFloat(type.dtype)) return nearer;
  // What is NaN alone is first where NaN comes first, and has the other behind it elsewhere.
  const std::string nan = Compare("NE", nan_first ? x : y, nan_first ? x : y, type);
  const std::string number = Compare("EQ", nan_first ? y : x, nan_first ? y : x, type);
  const Type flag{DType::kBool, type.dims};
  return Simple("or", {nearer, Simple("and", {nan, number}, flag)}, flag);
}

}  // namespace neuron::ir::hlo
