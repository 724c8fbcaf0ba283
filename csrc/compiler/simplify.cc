#include "compiler/simplify.h"

#include <cmath>
#include <numeric>
#include <unordered_map>

#include "support/error.h"

namespace neuron::compiler {

using ir::Dims;
using ir::Op;
using ir::OpCode;

namespace {

using Attributes = std::map<std::string, ir::Attribute, std::less<>>;

// What an operation becomes before it is added: its operands are in the new graph already.
struct Draft {
  OpCode code;
  ir::Type type;
  std::vector<Op*> operands;
  Attributes attributes;

  const Dims& Ints(const char* name) const { return std::get<Dims>(attributes.find(name)->second); }
};

class Rewriter {
 public:
  explicit Rewriter(const ir::Graph& from) : from_(from), to_(from.name()) {}

  ir::Graph Run() {
    for (const auto& op : from_.ops()) Visit(*op);
    for (const ir::Output& output : from_.outputs())
      to_.AddOutput(moved_.at(output.value), output.strides, output.aliases_parameter);
    to_.RemoveDeadOps();
    return std::move(to_);
  }

 private:
  void Visit(const Op& op) {
    if (op.code == OpCode::kParameter) {
      moved_[&op] = to_.AddParameter(op.type, op.Ints("strides"));
      return;
    }
    if (op.code == OpCode::kScalar) {
      moved_[&op] = to_.AddScalar(op.type.dtype);
      return;
    }
    Draft draft{op.code, op.type, {}, op.attributes};
    for (const Op* operand : op.operands) draft.operands.push_back(moved_.at(operand));
    moved_[&op] = Add(std::move(draft));
  }

  // An operation of the new graph that has the draft's value.
  Op* Add(Draft draft) {
    MergeViews(draft);
    FoldConstants(draft);
    if (Op* same = Identity(draft)) return same;
    auto [it, added] = known_.try_emplace(Key(draft));
    if (added) {
      it->second = to_.Add(draft.code, std::move(draft.type), std::move(draft.operands),
                           std::move(draft.attributes));
    }
    return it->second;
  }

  // A view of a view is one view; a broadcast constant is a constant.
  static void MergeViews(Draft& d) {
    if (d.operands.size() != 1) return;
    Op* inner = d.operands[0];
    if (d.code == OpCode::kBroadcastInDim && inner->code == OpCode::kConstant) {
      d = {OpCode::kConstant, d.type, {}, inner->attributes};
      return;
    }
    if (inner->code != d.code) return;
    switch (d.code) {
      case OpCode::kReshape:
        break;
      case OpCode::kTranspose: {
        Dims merged;
        for (int64_t i : d.Ints("permutation"))
          merged.push_back(inner->Ints("permutation")[static_cast<size_t>(i)]);
        d.attributes.insert_or_assign("permutation", merged);
        break;
      }
      case OpCode::kBroadcastInDim: {
        Dims merged;
        for (int64_t i : inner->Ints("dims"))
          merged.push_back(d.Ints("dims")[static_cast<size_t>(i)]);
        d.attributes.insert_or_assign("dims", merged);
        break;
      }
      case OpCode::kSlice:
        MergeSlices(d, *inner);
        break;
      default:
        return;
    }
    d.operands = inner->operands;
  }

  static void MergeSlices(Draft& d, const Op& inner) {
    Dims start, limit, stride;
    for (size_t i = 0; i < d.type.dims.size(); ++i) {
      start.push_back(inner.Ints("start")[i] + d.Ints("start")[i] * inner.Ints("stride")[i]);
      stride.push_back(inner.Ints("stride")[i] * d.Ints("stride")[i]);
      const int64_t n = d.type.dims[i];
      limit.push_back(n == 0 ? start[i] : start[i] + (n - 1) * stride[i] + 1);
    }
    d.attributes.insert_or_assign("start", start);
    d.attributes.insert_or_assign("limit", limit);
    d.attributes.insert_or_assign("stride", stride);
  }

  static std::optional<double> FloatConstant(const Op* op) {
    if (op->code != OpCode::kConstant) return std::nullopt;
    const auto* value = std::get_if<double>(&op->attributes.find("value")->second);
    return value == nullptr ? std::nullopt : std::optional(*value);
  }

  static bool IsConstant(const Op* op, double wanted) {
    if (op->code != OpCode::kConstant) return false;
    const ir::Attribute& value = op->attributes.find("value")->second;
    if (const auto* integer = std::get_if<int64_t>(&value))
      return static_cast<double>(*integer) == wanted;
    const double number = std::get<double>(value);
    return number == wanted && std::signbit(number) == std::signbit(wanted);
  }

  // + - * / of f32 and f64 constants. A sum, product or quotient of two f32 computed in f64 and
  // then rounded is the f32 one: f64 has more than twice the bits (S. A. Figueroa, "When is double
  // rounding innocuous?", 1995).
  static void FoldConstants(Draft& d) {
    const bool wide = d.type.dtype == DType::kF64;
    if (d.operands.size() != 2 || (!wide && d.type.dtype != DType::kF32)) return;
    const auto a = FloatConstant(d.operands[0]), b = FloatConstant(d.operands[1]);
    if (!a || !b) return;
    double value = 0;
    switch (d.code) {
      case OpCode::kAdd:
        value = *a + *b;
        break;
      case OpCode::kSubtract:
        value = *a - *b;
        break;
      case OpCode::kMultiply:
        value = *a * *b;
        break;
      case OpCode::kDivide:
        value = *a / *b;
        break;
      default:
        return;
    }
    d = {OpCode::kConstant, d.type, {}, {{"value", wide ? value : static_cast<float>(value)}}};
  }

  // An operand, if the operation changes nothing. x + 0 is missing: it turns -0 into 0.
  static Op* Identity(const Draft& d) {
    switch (d.code) {
      case OpCode::kConvert:
        return IdentityConvert(d);
      case OpCode::kReshape:
        return d.operands[0]->type == d.type ? d.operands[0] : nullptr;
      case OpCode::kTranspose:
        return IsCounting(d.Ints("permutation")) ? d.operands[0] : nullptr;
      case OpCode::kBroadcastInDim:
        return d.operands[0]->type == d.type && IsCounting(d.Ints("dims")) ? d.operands[0]
                                                                           : nullptr;
      case OpCode::kSlice:
        return d.operands[0]->type == d.type ? d.operands[0] : nullptr;
      case OpCode::kMultiply:
        if (d.type.dtype == DType::kBool) return nullptr;
        if (IsConstant(d.operands[0], 1)) return d.operands[1];
        [[fallthrough]];
      case OpCode::kDivide:
        return IsConstant(d.operands[1], 1) ? d.operands[0] : nullptr;
      case OpCode::kSubtract:
        return IsConstant(d.operands[1], 0) ? d.operands[0] : nullptr;
      case OpCode::kNegate:
      case OpCode::kNot:
        return d.operands[0]->code == d.code ? d.operands[0]->operands[0] : nullptr;
      case OpCode::kSelect:
        return d.operands[1] == d.operands[2] ? d.operands[1] : nullptr;
      default:
        return nullptr;
    }
  }

  static bool IsCounting(const Dims& dims) {
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] != static_cast<int64_t>(i)) return false;
    }
    return true;
  }

  // To the dtype it has, or there and back through a dtype that holds every value.
  static Op* IdentityConvert(const Draft& d) {
    Op* operand = d.operands[0];
    if (operand->type == d.type) return operand;
    if (operand->code != OpCode::kConvert) return nullptr;
    Op* source = operand->operands[0];
    return source->type == d.type && Holds(operand->type.dtype, d.type.dtype) ? source : nullptr;
  }

  static bool Holds(DType wide, DType narrow) {
    if (IsFloat(narrow)) {
      if (wide == DType::kF64) return narrow != DType::kF64;
      return wide == DType::kF32 && (narrow == DType::kBF16 || narrow == DType::kF16);
    }
    if (narrow == DType::kBool) return !IsComplex(wide);
    const bool is_signed = narrow != DType::kU8;
    return wide == DType::kI64 || (is_signed && IsIntegral(wide) && wide != DType::kU8 &&
                                   wide != DType::kBool && ByteSize(wide) > ByteSize(narrow));
  }

  static std::string Key(const Draft& d) {
    Op op;
    op.code = d.code;
    op.type = d.type;
    op.operands = d.operands;
    op.attributes = d.attributes;
    return ir::ToString(op);  // the same text but for the result's name, which is 0 for all
  }

  const ir::Graph& from_;
  ir::Graph to_;
  std::unordered_map<const Op*, Op*> moved_;
  std::unordered_map<std::string, Op*> known_;
};

}  // namespace

ir::Graph Simplify(const ir::Graph& graph) { return Rewriter(graph).Run(); }

}  // namespace neuron::compiler
