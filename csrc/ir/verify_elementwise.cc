#include "ir/verify_rules.h"

namespace neuron::ir {
namespace {

constexpr unsigned kReals = kBools | kInts | kFloats;
constexpr unsigned kAnything = kReals | kComplexes;

// The dtypes that an operation with operands and result of one type computes.
unsigned Allowed(OpCode code) {
  switch (code) {
    case OpCode::kAdd:
    case OpCode::kMultiply:
      return kAnything;
    case OpCode::kNegate:
    case OpCode::kSubtract:
    case OpCode::kDivide:
    case OpCode::kPower:
      return kInts | kFloats | kComplexes;
    case OpCode::kAbs:
    case OpCode::kSign:
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kTrunc:
    case OpCode::kRoundNearestEven:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
      return kReals;
    case OpCode::kRemainder:
      return kInts | kFloats;
    case OpCode::kNot:
    case OpCode::kAnd:
    case OpCode::kOr:
    case OpCode::kXor:
      return kBools | kInts;
    case OpCode::kShiftLeft:
    case OpCode::kShiftRightArithmetic:
    case OpCode::kShiftRightLogical:
      return kInts;
    case OpCode::kErf:
    case OpCode::kErfc:
    case OpCode::kErfInv:
    case OpCode::kLgamma:
    case OpCode::kDigamma:
    case OpCode::kAtan2:
    case OpCode::kNextAfter:
    case OpCode::kFma:
      return kFloats;
    default:
      return kFloats | kComplexes;  // exponentials, logarithms, trigonometry
  }
}

void VerifyCompare(const Op& op) {
  RequireOneOf(op, "direction", {"EQ", "NE", "LT", "LE", "GT", "GE"});
  const Type& type = op.operands[0]->type;
  Require(op, type == op.operands[1]->type, "its operands must have one type, have ",
          ToString(type), " and ", ToString(op.operands[1]->type));
  const std::string& direction = op.String("direction");
  RequireDType(op, type, direction == "EQ" || direction == "NE" ? kAnything : kReals, "operands");
  RequireResult(op, {DType::kBool, type.dims});
}

void VerifySelect(const Op& op) {
  const Type& condition = op.operands[0]->type;
  Require(op, condition == Type{DType::kBool, op.type.dims},
          "its condition must be b8 of the result's shape, is ", ToString(condition));
  for (size_t i : {1, 2}) RequireResult(op, op.operands[i]->type);
}

void VerifyConvert(const Op& op) {
  const Type& from = op.operands[0]->type;
  RequireResult(op, {op.type.dtype, from.dims});
  Require(op, IsComplex(op.type.dtype) || !IsComplex(from.dtype),
          "a complex number becomes no real one");
}

void VerifyConstant(const Op& op) {
  const Attribute& value = op.attributes.find("value")->second;
  const auto* integer = std::get_if<int64_t>(&value);
  if (!IsIntegral(op.type.dtype))
    return Require(op, integer == nullptr, "value must be a double for this dtype");
  Require(op, integer != nullptr, "value must be an int for this dtype");
  const int bits = op.type.dtype == DType::kBool ? 1 : 8 * ByteSize(op.type.dtype);
  if (bits == 64) return;  // u64 in two's complement
  const int64_t low = IsSigned(op.type.dtype) ? -(int64_t{1} << (bits - 1)) : 0;
  const int64_t high =
      IsSigned(op.type.dtype) ? (int64_t{1} << (bits - 1)) - 1 : (int64_t{1} << bits) - 1;
  Require(op, *integer >= low && *integer <= high, "value does not fit the dtype");
}

}  // namespace

void VerifySource(const Op& op) {
  switch (op.code) {
    case OpCode::kParameter:
      RequireCount(op, "strides", op.type.dims.size());
      for (const int64_t s : op.Ints("strides"))
        Require(op, s >= 0, "strides must not be negative");
      break;
    case OpCode::kScalar: {
      const DType t = op.type.dtype;
      Require(op,
              op.type.dims.empty() && (t == DType::kF64 || t == DType::kI64 || t == DType::kBool),
              "its type must be f64[], i64[] or b8[]");
      break;
    }
    case OpCode::kConstant:
      VerifyConstant(op);
      break;
    case OpCode::kShapeConstant:
      Require(op, std::holds_alternative<int64_t>(op.attributes.find("value")->second),
              "value must be an int");
      RequireResult(op, {DType::kI64, {}});
      break;
    default:  // iota
      RequireDType(op, op.type, kInts | kFloats, "result");
      RequireDim(op, op.Int("dim"), op.type.rank(), "dim");
  }
}

void VerifyElementwise(const Op& op) {
  switch (op.code) {
    case OpCode::kConvert:
      return VerifyConvert(op);
    case OpCode::kBitcastConvert: {
      const Type& from = op.operands[0]->type;
      RequireResult(op, {op.type.dtype, from.dims});
      return Require(op, ByteSize(from.dtype) == ByteSize(op.type.dtype),
                     "both dtypes must have the same size");
    }
    case OpCode::kCompare:
      return VerifyCompare(op);
    case OpCode::kSelect:
      return VerifySelect(op);
    case OpCode::kIsNan:
      RequireDType(op, op.operands[0]->type, kFloats | kComplexes, "operand");
      return RequireResult(op, {DType::kBool, op.operands[0]->type.dims});
    default:
      for (const Op* operand : op.operands) RequireResult(op, operand->type);
      RequireDType(op, op.type, Allowed(op.code), "result");
  }
}

}  // namespace neuron::ir
