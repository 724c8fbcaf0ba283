#include "ir/verify_rules.h"

namespace neuron::ir {
namespace {

void VerifyBroadcast(const Op& op) {
  const Type& from = op.operands[0]->type;
  const Dims& dims = op.Ints("dims");
  Require(op, from.dtype == op.type.dtype, "the dtype must stay ", Name(from.dtype));
  RequireCount(op, "dims", from.dims.size());
  RequireDims(op, dims, op.type.rank(), "dims");
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t to = op.type.dims[static_cast<size_t>(dims[i])];
    Require(op, from.dims[i] == to || from.dims[i] == 1, "operand dimension ", i, " of size ",
            from.dims[i], " cannot become size ", to);
  }
}

void VerifyTranspose(const Op& op) {
  const Type& from = op.operands[0]->type;
  const Dims& permutation = op.Ints("permutation");
  RequireCount(op, "permutation", from.dims.size());
  RequireDims(op, permutation, from.rank(), "permutation");
  Type expected{from.dtype, {}};
  for (const int64_t d : permutation) expected.dims.push_back(from.dims[static_cast<size_t>(d)]);
  RequireResult(op, expected);
}

void VerifySlice(const Op& op) {
  const Type& from = op.operands[0]->type;
  for (const char* name : {"start", "limit", "stride"}) RequireCount(op, name, from.dims.size());
  Type expected{from.dtype, {}};
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const int64_t start = op.Ints("start")[d], limit = op.Ints("limit")[d],
                  stride = op.Ints("stride")[d];
    Require(op, stride >= 1, "stride must be at least 1");
    Require(op, 0 <= start && start <= limit && limit <= from.dims[d], "dimension ", d, ": [",
            start, ", ", limit, ") is no range within size ", from.dims[d]);
    expected.dims.push_back((limit - start) / stride + ((limit - start) % stride != 0));
  }
  RequireResult(op, expected);
}

// As StableHLO's pad: `interior` elements between neighbours, then low and high, which crop when
// negative.
void VerifyPad(const Op& op) {
  const Type& from = op.operands[0]->type;
  const Type& value = op.operands[1]->type;
  Require(op, value == Type{from.dtype, {}}, "the padding value must be ",
          ToString(Type{from.dtype, {}}), ", is ", ToString(value));
  for (const char* name : {"low", "high", "interior"}) RequireCount(op, name, from.dims.size());
  Type expected{from.dtype, {}};
  for (size_t d = 0; d < from.dims.size(); ++d) {
    const int64_t interior = op.Ints("interior")[d];
    Require(op, interior >= 0, "interior must not be negative");
    const int64_t between = from.dims[d] > 0 ? (from.dims[d] - 1) * interior : 0;
    expected.dims.push_back(op.Ints("low")[d] + from.dims[d] + between + op.Ints("high")[d]);
  }
  RequireResult(op, expected);
}

void VerifyConcatenate(const Op& op) {
  Require(op, !op.operands.empty(), "it needs an operand");
  Type expected = op.operands[0]->type;
  const int64_t dim = op.Int("dim");
  RequireDim(op, dim, expected.rank(), "dim");
  int64_t& size = expected.dims[static_cast<size_t>(dim)];
  size = 0;
  for (const Op* operand : op.operands) {
    Type other = operand->type;
    Require(op, other.rank() == expected.rank(), "its operands must have one rank");
    const int64_t part = other.dims[static_cast<size_t>(dim)];
    other.dims[static_cast<size_t>(dim)] = size;
    Require(op, other == expected, "its operands may differ in dimension ", dim, " only");
    size += part;
  }
  RequireResult(op, expected);
}

Dims JoinDims(const Dims& front, const Dims& all, size_t from) {
  Dims out = front;
  out.insert(out.end(), all.begin() + static_cast<int64_t>(from), all.end());
  return out;
}

void VerifyTake(const Op& op) {
  const Type& from = op.operands[0]->type;
  const Type& indices = op.operands[1]->type;
  RequireDType(op, indices, kInts, "indices");
  const int64_t dim = op.Int("dim");
  RequireDim(op, dim, from.rank(), "dim");
  if (op.Has("wrap")) RequireFlag(op, "wrap");
  Dims dims(from.dims.begin(), from.dims.begin() + dim);
  dims.insert(dims.end(), indices.dims.begin(), indices.dims.end());
  RequireResult(op, {from.dtype, JoinDims(dims, from.dims, static_cast<size_t>(dim) + 1)});
}

// The rank of the indices is the operand's, and no size exceeds it but at `dim`.
void VerifyIndicesAlong(const Op& op) {
  const Type& from = op.operands[0]->type;
  const Type& indices = op.operands[1]->type;
  RequireDType(op, indices, kInts, "indices");
  const int64_t dim = op.Int("dim");
  RequireDim(op, dim, from.rank(), "dim");
  Require(op, indices.rank() == from.rank(), "its indices must have rank ", from.rank());
  for (int64_t d = 0; d < from.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    Require(op, d == dim || indices.dims[i] <= from.dims[i], "dimension ", d, " of the indices, ",
            indices.dims[i], ", exceeds the operand's, ", from.dims[i]);
  }
}

void VerifyScatter(const Op& op) {
  VerifyIndicesAlong(op);
  RequireOneOf(op, "mode", {"set", "add", "multiply", "maximum", "minimum"});
  const Type expected{op.operands[0]->type.dtype, op.operands[1]->type.dims};
  Require(op, op.operands[2]->type == expected, "its updates must be ", ToString(expected),
          ", are ", ToString(op.operands[2]->type));
  RequireResult(op, op.operands[0]->type);
}

// The type of what operands 1 .. n address in operand 0: one shape S, then the dimensions not
// indexed.
Type AddressedType(const Op& op, size_t n) {
  Require(op, n >= 1, "it needs an index operand");
  const Type& from = op.operands[0]->type;
  Require(op, n <= from.dims.size(), "it has ", n, " index operands for rank ", from.rank());
  const Type& indices = op.operands[1]->type;
  Require(op, indices.dtype == DType::kI64, "its indices must be i64");
  for (size_t i = 2; i <= n; ++i)
    Require(op, op.operands[i]->type == indices, "its indices must have one type");
  return {from.dtype, JoinDims(indices.dims, from.dims, n)};
}

void VerifyScatterNd(const Op& op) {
  Require(op, op.operands.size() >= 3, "it needs an operand, indices and updates");
  RequireOneOf(op, "mode", {"set", "add"});
  const Type expected = AddressedType(op, op.operands.size() - 2);
  Require(op, op.operands.back()->type == expected, "its updates must be ", ToString(expected),
          ", are ", ToString(op.operands.back()->type));
  RequireResult(op, op.operands[0]->type);
}

// The result of a reduction over `dims`: they vanish; the position of an extremum is i64.
void VerifyReduce(const Op& op) {
  RequireOneOf(op, "kind",
               {"add", "multiply", "maximum", "minimum", "and", "or", "argmax", "argmin"});
  const std::string& kind = op.String("kind");
  const Type& from = op.operands[0]->type;
  const bool arg = kind == "argmax" || kind == "argmin";
  const bool logic = kind == "and" || kind == "or";
  const bool sum = kind == "add" || kind == "multiply";
  RequireDType(op, from, kBools | kInts | (logic ? 0 : kFloats) | (sum ? kComplexes : 0),
               "operand");
  const Dims& dims = op.Ints("dims");
  RequireDims(op, dims, from.rank(), "dims");
  std::vector<bool> reduced(from.dims.size());
  for (const int64_t d : dims) reduced[static_cast<size_t>(d)] = true;
  Type expected{arg ? DType::kI64 : from.dtype, {}};
  for (size_t d = 0; d < reduced.size(); ++d) {
    if (!reduced[d]) expected.dims.push_back(from.dims[d]);
  }
  RequireResult(op, expected);
}

void VerifyCumulative(const Op& op) {
  RequireOneOf(op, "kind", {"add", "multiply", "maximum", "minimum", "logaddexp"});
  const std::string& kind = op.String("kind");
  const bool sum = kind == "add" || kind == "multiply";
  const unsigned other = (kind == "logaddexp" ? 0 : kBools | kInts) | (sum ? kComplexes : 0);
  RequireDType(op, op.operands[0]->type, kFloats | other, "operand");
  RequireDim(op, op.Int("dim"), op.operands[0]->type.rank(), "dim");
  RequireResult(op, op.operands[0]->type);
}

}  // namespace

void VerifyShape(const Op& op) {
  switch (op.code) {
    case OpCode::kBroadcastInDim:
      return VerifyBroadcast(op);
    case OpCode::kReshape: {
      const Type& from = op.operands[0]->type;
      return Require(op, from.dtype == op.type.dtype && from.NumElements() == op.type.NumElements(),
                     "its type must have the dtype and the number of elements of ", ToString(from));
    }
    case OpCode::kTranspose:
      return VerifyTranspose(op);
    case OpCode::kSlice:
      return VerifySlice(op);
    case OpCode::kPad:
      return VerifyPad(op);
    case OpCode::kConcatenate:
      return VerifyConcatenate(op);
    default:  // reverse
      RequireDims(op, op.Ints("dims"), op.operands[0]->type.rank(), "dims");
      RequireResult(op, op.operands[0]->type);
  }
}

void VerifyIndirect(const Op& op) {
  switch (op.code) {
    case OpCode::kTake:
      return VerifyTake(op);
    case OpCode::kTakeAlong:
      VerifyIndicesAlong(op);
      return RequireResult(op, {op.operands[0]->type.dtype, op.operands[1]->type.dims});
    case OpCode::kTakeNd:
      Require(op, op.operands.size() >= 2, "it needs an operand and indices");
      return RequireResult(op, AddressedType(op, op.operands.size() - 1));
    case OpCode::kScatter:
      return VerifyScatter(op);
    default:
      return VerifyScatterNd(op);
  }
}

void VerifyReduction(const Op& op) {
  switch (op.code) {
    case OpCode::kReduce:
      return VerifyReduce(op);
    case OpCode::kCumSum:
      return VerifyCumulative(op);
    default: {  // sort, argsort
      const Type& from = op.operands[0]->type;
      RequireDType(op, from, kBools | kInts | kFloats, "operand");
      RequireDim(op, op.Int("dim"), from.rank(), "dim");
      RequireFlag(op, "descending");
      RequireResult(op, {op.code == OpCode::kArgSort ? DType::kI64 : from.dtype, from.dims});
    }
  }
}

}  // namespace neuron::ir
