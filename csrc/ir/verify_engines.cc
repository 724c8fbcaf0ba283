#include "ir/verify_rules.h"

namespace neuron::ir {
namespace {

// Sizes of the dimensions of one side that are neither batch nor contracted, appended to `out`.
void AppendFree(const Type& type, const Dims& batch, const Dims& contract, Dims& out) {
  std::vector<bool> taken(type.dims.size());
  for (const Dims* dims : {&batch, &contract}) {
    for (const int64_t d : *dims) taken[static_cast<size_t>(d)] = true;
  }
  for (size_t d = 0; d < taken.size(); ++d) {
    if (!taken[d]) out.push_back(type.dims[d]);
  }
}

// The sizes of each pair of dimensions agree.
void RequirePairs(const Op& op, const Dims& lhs, const Dims& rhs, std::string_view role) {
  Require(op, lhs.size() == rhs.size(), "lhs_", role, " and rhs_", role, " must have one length");
  for (size_t i = 0; i < lhs.size(); ++i) {
    const int64_t a = op.operands[0]->type.dims[static_cast<size_t>(lhs[i])];
    const int64_t b = op.operands[1]->type.dims[static_cast<size_t>(rhs[i])];
    Require(op, a == b, "sizes ", a, " of lhs_", role, " and ", b, " of rhs_", role, " differ");
  }
}

void VerifyDot(const Op& op) {
  Require(op, op.operands.size() == 2 || op.operands.size() == 3,
          "it takes lhs, rhs and perhaps an addend");
  const Type& lhs = op.operands[0]->type;
  const Type& rhs = op.operands[1]->type;
  Require(op, lhs.dtype == rhs.dtype, "lhs and rhs must have one dtype");
  const Dims& lhs_batch = op.Ints("lhs_batch");
  const Dims& rhs_batch = op.Ints("rhs_batch");
  const Dims& lhs_contract = op.Ints("lhs_contract");
  const Dims& rhs_contract = op.Ints("rhs_contract");
  const auto joined = [](Dims a, const Dims& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  RequireDims(op, joined(lhs_batch, lhs_contract), lhs.rank(), "lhs_batch and lhs_contract");
  RequireDims(op, joined(rhs_batch, rhs_contract), rhs.rank(), "rhs_batch and rhs_contract");
  RequirePairs(op, lhs_batch, rhs_batch, "batch");
  RequirePairs(op, lhs_contract, rhs_contract, "contract");
  // Half-precision products may keep the f32 they were accumulated in.
  const bool half = lhs.dtype == DType::kBF16 || lhs.dtype == DType::kF16;
  Type expected{half && op.type.dtype == DType::kF32 ? DType::kF32 : lhs.dtype, {}};
  for (const int64_t d : lhs_batch) expected.dims.push_back(lhs.dims[static_cast<size_t>(d)]);
  AppendFree(lhs, lhs_batch, lhs_contract, expected.dims);
  AppendFree(rhs, rhs_batch, rhs_contract, expected.dims);
  RequireResult(op, expected);
  if (op.operands.size() == 3) {
    Require(op, op.operands[2]->type == op.type, "its addend must have its type, has ",
            ToString(op.operands[2]->type));
  } else {
    Require(op, !op.Has("beta"), "beta needs an addend");
  }
}

// The output size of each spatial dimension, as torch.nn.Conv2d and torch.nn.ConvTranspose2d
// document it.
void AppendSpatial(const Op& op, Dims& out) {
  const Type& input = op.operands[0]->type;
  const Type& weight = op.operands[1]->type;
  for (size_t d = 0; d < op.Ints("stride").size(); ++d) {
    const int64_t stride = op.Ints("stride")[d], padding = op.Ints("padding")[d];
    const int64_t dilation = op.Ints("dilation")[d], output_padding = op.Ints("output_padding")[d];
    Require(op, stride >= 1 && dilation >= 1, "stride and dilation must be at least 1");
    Require(op, padding >= 0 && output_padding >= 0, "paddings must not be negative");
    const int64_t reach =
        dilation * (weight.dims[d + 2] - 1);  // of the kernel, beyond its first element
    if (op.Int("transposed") == 1) {
      out.push_back((input.dims[d + 2] - 1) * stride - 2 * padding + reach + output_padding + 1);
    } else {
      const int64_t room = input.dims[d + 2] + 2 * padding - reach - 1;
      Require(op, room >= 0, "the kernel exceeds the padded input in spatial dimension ", d);
      out.push_back(room / stride + 1);
    }
  }
}

void VerifyConvolution(const Op& op) {
  Require(op, op.operands.size() == 2 || op.operands.size() == 3,
          "it takes input, weight and perhaps a bias");
  const Type& input = op.operands[0]->type;
  const Type& weight = op.operands[1]->type;
  Require(op, input.rank() >= 3 && weight.rank() == input.rank(),
          "input and weight must have one rank of at least 3");
  RequireDType(op, input, kInts | kFloats | kComplexes, "input");
  const auto spatial = static_cast<size_t>(input.rank() - 2);
  for (const char* name : {"stride", "padding", "dilation", "output_padding"})
    RequireCount(op, name, spatial);
  RequireFlag(op, "transposed");
  const int64_t groups = op.Int("groups");
  Require(op, groups >= 1, "groups must be at least 1");
  const bool transposed = op.Int("transposed") == 1;
  const int64_t channels = transposed ? weight.dims[0] : weight.dims[1] * groups;
  Require(op, input.dims[1] == channels, "the input has ", input.dims[1],
          " channels, the weight takes ", channels);
  Require(op, weight.dims[0] % groups == 0, "groups must divide dimension 0 of the weight");
  const int64_t made = transposed ? weight.dims[1] * groups : weight.dims[0];
  Type expected{input.dtype, {input.dims[0], made}};
  AppendSpatial(op, expected.dims);
  RequireResult(op, expected);
  Require(op, weight.dtype == input.dtype, "input and weight must have one dtype");
  if (op.operands.size() == 3) {
    const Type bias{input.dtype, {made}};
    Require(op, op.operands[2]->type == bias, "its bias must be ", ToString(bias), ", is ",
            ToString(op.operands[2]->type));
  }
}

void VerifyConvolutionWeightGrad(const Op& op) {
  const Type& input = op.operands[0]->type;
  const Type& grad = op.operands[1]->type;
  Require(op, input.rank() >= 3 && grad.rank() == input.rank() && op.type.rank() == input.rank(),
          "input, gradient and result must have one rank of at least 3");
  RequireDType(op, input, kFloats, "input");
  Require(op, grad.dtype == input.dtype, "input and gradient must have one dtype");
  Require(op, grad.dims[0] == input.dims[0], "input and gradient must have one batch size");
  const auto spatial = static_cast<size_t>(input.rank() - 2);
  for (const char* name : {"stride", "padding", "dilation"}) RequireCount(op, name, spatial);
  const int64_t groups = op.Int("groups");
  Require(op, groups >= 1 && input.dims[1] % groups == 0 && grad.dims[1] % groups == 0,
          "groups must divide the channels of input and gradient");
  Type expected{input.dtype, {grad.dims[1], input.dims[1] / groups}};
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t kernel = op.type.dims[d + 2], stride = op.Ints("stride")[d];
    const int64_t padding = op.Ints("padding")[d], dilation = op.Ints("dilation")[d];
    Require(op, stride >= 1 && dilation >= 1 && padding >= 0,
            "stride and dilation must be at least 1, padding not negative");
    const int64_t needed = (grad.dims[d + 2] - 1) * stride + dilation * (kernel - 1) + 1;
    Require(op, needed <= input.dims[d + 2] + 2 * padding,
            "the gradient exceeds what the input gives in spatial dimension ", d);
    expected.dims.push_back(kernel);
  }
  RequireResult(op, expected);
}

// The bias broadcasts to the scores, [B,H,L,S], as NumPy aligns shapes.
void VerifyAttentionBias(const Op& op, const Type& bias, const Dims& scores) {
  RequireDType(op, bias, kBools | kFloats, "bias");
  Require(op, bias.rank() <= 4, "its bias must have rank 4 or less");
  for (size_t i = 0; i < bias.dims.size(); ++i) {
    const size_t d = i + scores.size() - bias.dims.size();
    Require(op, bias.dims[i] == 1 || bias.dims[i] == scores[d], "its bias of type ", ToString(bias),
            " does not broadcast to ", ToString(Type{bias.dtype, scores}));
  }
}

// q, k, v, bias?, random? from operand `first` on. Returns the type of the attention's result.
Type RequireAttentionOperands(const Op& op, size_t first) {
  const bool drops = op.Has("dropout");
  const size_t count = op.operands.size() - (drops ? 1 : 0);
  Require(op, op.operands.size() > first && (count == first + 3 || count == first + 4),
          "it takes q, k, v, perhaps a bias and, with dropout, seed and offset");
  RequireFlag(op, "is_causal");
  const Type& q = op.operands[first]->type;
  const Type& k = op.operands[first + 1]->type;
  const Type& v = op.operands[first + 2]->type;
  RequireDType(op, q, kFloats, "q");
  for (const Type* type : {&q, &k, &v}) {
    Require(op, type->rank() == 4 && type->dtype == q.dtype,
            "q, k and v must have rank 4 and one dtype");
  }
  Require(op, k.dims[0] == q.dims[0] && k.dims[3] == q.dims[3],
          "q [B,H,L,E] and k [B,Hk,S,E] must agree in B and E");
  const int64_t kv_heads = k.dims[1];
  Require(op, kv_heads == q.dims[1] || (kv_heads > 0 && q.dims[1] % kv_heads == 0), "the ",
          kv_heads, " heads of k must divide the ", q.dims[1], " of q");
  Require(op, v.dims[0] == k.dims[0] && v.dims[1] == kv_heads && v.dims[2] == k.dims[2],
          "k [B,Hk,S,E] and v [B,Hk,S,Ev] must agree in B, Hk and S");
  if (count == first + 4) {
    VerifyAttentionBias(op, op.operands[first + 3]->type,
                        {q.dims[0], q.dims[1], q.dims[2], k.dims[2]});
  }
  if (drops) {
    Require(op, op.Double("dropout") >= 0 && op.Double("dropout") <= 1,
            "dropout must be in [0, 1]");
    Require(op, op.operands.back()->type == Type{DType::kI64, {2}},
            "seed and offset must be i64[2], are ", ToString(op.operands.back()->type));
  }
  return {q.dtype, {q.dims[0], q.dims[1], q.dims[2], v.dims[3]}};
}

void VerifyAttention(const Op& op) {
  const Type result = RequireAttentionOperands(op, 0);
  if (op.code == OpCode::kAttention) return RequireResult(op, result);
  RequireResult(op, {DType::kF32, {result.dims[0], result.dims[1], result.dims[2]}});
}

void VerifyAttentionGrad(const Op& op) {
  const Type result = RequireAttentionOperands(op, 3);
  Require(op, op.operands[0]->type == result && op.operands[1]->type == result,
          "grad and the attention's result must be ", ToString(result));
  const Type lse{DType::kF32, {result.dims[0], result.dims[1], result.dims[2]}};
  Require(op, op.operands[2]->type == lse, "the log-sum-exp must be ", ToString(lse), ", is ",
          ToString(op.operands[2]->type));
  const std::string& of = op.String("of");
  Require(op, of == "q" || of == "k" || of == "v", "`of` must be q, k or v, is ", of);
  RequireResult(op, op.operands[of == "q" ? 3 : of == "k" ? 4 : 5]->type);
}

void VerifyNonzero(const Op& op) {
  const Type& from = op.operands[0]->type;
  Require(op, op.type.dtype == DType::kI64 && op.type.rank() == 2 && op.type.dims[1] == from.rank(),
          "its type must be i64[n,", from.rank(), "]");
  Require(op, op.type.dims[0] <= from.NumElements(), "its operand has only ", from.NumElements(),
          " elements");
}

void VerifyRng(const Op& op) {
  for (const Op* operand : op.operands) {
    Require(op, operand->type == Type{DType::kI64, {}}, "seed and offset must be i64[]");
  }
  Require(op, op.Int("word") >= 0 && op.Int("word") <= 3, "word must be 0, 1, 2 or 3");
  Require(op, op.type.dtype == DType::kU32, "its dtype must be u32");
}

}  // namespace

void VerifyEngine(const Op& op) {
  switch (op.code) {
    case OpCode::kDotGeneral:
      return VerifyDot(op);
    case OpCode::kConvolution:
      return VerifyConvolution(op);
    case OpCode::kConvolutionWeightGrad:
      return VerifyConvolutionWeightGrad(op);
    case OpCode::kAttention:
    case OpCode::kAttentionLse:
      return VerifyAttention(op);
    case OpCode::kAttentionGrad:
      return VerifyAttentionGrad(op);
    case OpCode::kNonzero:
      return VerifyNonzero(op);
    case OpCode::kRngBits:
      return VerifyRng(op);
    default:
      NEURON_THROW(kInternal, "the verifier has no rules for ", Info(op.code).name);
  }
}

}  // namespace neuron::ir
