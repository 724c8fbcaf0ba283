#include "ir/stablehlo_decompose.h"

#include <numbers>

#include "ir/stablehlo_text.h"

namespace neuron::ir::hlo {
namespace {

std::vector<Op*> AddParameters(Graph& graph, const Op& op) {
  std::vector<Op*> out;
  for (const Op* operand : op.operands)
    out.push_back(graph.AddParameter(operand->type, ContiguousStrides(operand->type.dims)));
  return out;
}

void SetResult(Graph& graph, Op* value) {
  graph.AddOutput(value, ContiguousStrides(value->type.dims));
  graph.RemoveDeadOps();
}

// In a wider dtype, whose product is exact: only the sum and the result are rounded.
Op* WideFma(Builder& b, const Op& op, const std::vector<Op*>& x) {
  if (op.type.dtype == DType::kF64) {
    NEURON_THROW(kUnsupported,
                 "StableHLO has no form of fma of f64: no wider dtype is there: ", ToString(op));
  }
  Op* product = b.Mul(b.Convert(x[0], DType::kF64), b.Convert(x[1], DType::kF64));
  return b.Convert(b.Add(product, b.Convert(x[2], DType::kF64)), op.type.dtype);
}

// Short definitions, written in place; null if the operation needs none of them.
Op* DecomposeInPlace(Builder& b, const Op& op, const std::vector<Op*>& x) {
  const DType dtype = op.type.dtype;
  const bool integral = IsIntegral(dtype);
  switch (op.code) {
    case OpCode::kFloor:
    case OpCode::kCeil:
    case OpCode::kRoundNearestEven:
      return integral ? x[0] : nullptr;
    case OpCode::kTrunc: {
      if (integral) return x[0];
      Op* negative = b.Compare("LT", x[0], b.Const(dtype, 0));
      return b.Select(negative, b.Unary(OpCode::kCeil, x[0]), b.Unary(OpCode::kFloor, x[0]));
    }
    case OpCode::kAbs:
      return integral && !IsSigned(dtype) ? x[0] : nullptr;
    case OpCode::kSign:
      if (!integral || IsSigned(dtype)) return nullptr;
      return b.Convert(b.Convert(x[0], DType::kBool), dtype);
    case OpCode::kFma:
      return WideFma(b, op, x);
    default:
      return nullptr;
  }
}

// The name that StableHLO's companion dialect has for a function, or "".
std::string_view FunctionName(OpCode code) {
  switch (code) {
    case OpCode::kExp2:
      return "neuron.exp2";
    case OpCode::kLog2:
      return "neuron.log2";
    case OpCode::kLog10:
      return "neuron.log10";
    case OpCode::kAsin:
      return "chlo.asin";
    case OpCode::kAcos:
      return "chlo.acos";
    case OpCode::kAtan:
      return "chlo.atan";
    case OpCode::kSinh:
      return "chlo.sinh";
    case OpCode::kCosh:
      return "chlo.cosh";
    case OpCode::kAsinh:
      return "chlo.asinh";
    case OpCode::kAcosh:
      return "chlo.acosh";
    case OpCode::kAtanh:
      return "chlo.atanh";
    case OpCode::kErf:
      return "chlo.erf";
    case OpCode::kErfc:
      return "chlo.erfc";
    case OpCode::kErfInv:
      return "chlo.erf_inv";
    case OpCode::kLgamma:
      return "chlo.lgamma";
    case OpCode::kDigamma:
      return "chlo.digamma";
    case OpCode::kNextAfter:
      return "chlo.next_after";
    default:
      return "";
  }
}

// Half-precision functions are computed in f32, but for the next representable number.
Op* FunctionOf(Builder& b, const Op& op, std::vector<Op*> x) {
  if (!IsFloat(op.type.dtype)) {
    NEURON_THROW(kUnsupported, "StableHLO has no form of ", Info(op.code).name, " of ",
                 Name(op.type.dtype), ": ", ToString(op));
  }
  const bool half = op.type.dtype == DType::kF16 || op.type.dtype == DType::kBF16;
  if (half && op.code != OpCode::kNextAfter) {
    for (Op*& value : x) value = b.Convert(value, DType::kF32);
  }
  return b.Convert(DecomposeFunction(b, op, x), op.type.dtype);
}

std::string AttentionAttributes(const Op& op) {
  std::string out = StrCat("is_causal = ", op.Int("is_causal") == 1 ? "true" : "false",
                           ", scale = ", DoubleAttribute(op.Double("scale")));
  if (op.Has("dropout")) out += ", dropout = " + DoubleAttribute(op.Double("dropout"));
  if (op.Has("of")) out += ", of = " + Quote(op.String("of"));
  return out;
}

}  // namespace

std::optional<Decomposition> Decompose(const Op& op) {
  Decomposition out{std::string(Info(op.code).name)};
  Builder b(out.graph);
  const std::vector<Op*> x = AddParameters(out.graph, op);
  if (Op* value = DecomposeInPlace(b, op, x)) {
    SetResult(out.graph, value);
    return out;
  }
  Op* value = nullptr;
  if (const std::string_view name = FunctionName(op.code); !name.empty()) {
    out.composite = name;
    value = FunctionOf(b, op, x);
  } else {
    out.composite = StrCat("neuron.", Info(op.code).name);
    switch (op.code) {
      case OpCode::kCumSum:
        value = DecomposeCumulative(b, op, x[0]);
        out.attributes =
            StrCat("dim = ", op.Int("dim"), " : i64, kind = ", Quote(op.String("kind")));
        break;
      case OpCode::kRngBits:
        value = DecomposeRng(b, op, x);
        out.attributes = StrCat("word = ", op.Int("word"), " : i64");
        break;
      case OpCode::kAttention:
      case OpCode::kAttentionLse:
      case OpCode::kAttentionGrad:
        value = DecomposeAttention(b, op, x);
        out.attributes = AttentionAttributes(op);
        break;
      case OpCode::kNonzero:
        value = DecomposeNonzero(b, op, x[0]);
        break;
      default:
        return std::nullopt;
    }
  }
  SetResult(out.graph, value);
  return out;
}

}  // namespace neuron::ir::hlo
