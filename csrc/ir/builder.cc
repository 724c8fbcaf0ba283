#include "ir/builder.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace neuron::ir {

Dims BroadcastDims(const Dims& a, const Dims& b) {
  Dims out(std::max(a.size(), b.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      NEURON_THROW(kInvalidArgument, "sizes ", x, " and ", y, " do not broadcast");
    }
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

int64_t WrapDim(int64_t dim, int64_t rank) {
  const int64_t limit = std::max<int64_t>(rank, 1);
  if (dim < -limit || dim >= limit) {
    NEURON_THROW(kOutOfRange, "Dimension out of range (expected to be in range of [", -limit, ", ",
                 limit - 1, "], but got ", dim, ")");
  }
  return dim < 0 ? dim + limit : dim;
}

Op* Builder::Binary(OpCode code, Op* x, Op* y) {
  if (x->type.dims != y->type.dims) {
    const Dims dims = BroadcastDims(x->type.dims, y->type.dims);
    x = Broadcast(x, dims);
    y = Broadcast(y, dims);
  }
  return graph_.Add(code, x->type, {x, y});
}

Op* Builder::Compare(const char* direction, Op* x, Op* y) {
  const Dims dims = BroadcastDims(x->type.dims, y->type.dims);
  return graph_.Add(OpCode::kCompare, {DType::kBool, dims},
                    {Broadcast(x, dims), Broadcast(y, dims)},
                    {{"direction", std::string(direction)}});
}

Op* Builder::Select(Op* condition, Op* x, Op* y) {
  const Dims dims = BroadcastDims(condition->type.dims, BroadcastDims(x->type.dims, y->type.dims));
  return graph_.Add(OpCode::kSelect, {x->type.dtype, dims},
                    {Broadcast(condition, dims), Broadcast(x, dims), Broadcast(y, dims)});
}

Op* Builder::Convert(Op* x, DType dtype) {
  if (x->type.dtype == dtype) return x;
  // Outside in: what remains outermost is a view, which the planner moves into the destination.
  if (x->code == OpCode::kReshape) return Reshape(Convert(x->operands[0], dtype), x->type.dims);
  return graph_.Add(OpCode::kConvert, {dtype, x->type.dims}, {x});
}

Op* Builder::Const(DType dtype, double value) {
  if (IsIntegral(dtype)) return ConstInt(dtype, static_cast<int64_t>(value));
  return graph_.Add(OpCode::kConstant, {dtype, {}}, {}, {{"value", value}});
}

Op* Builder::ConstInt(DType dtype, int64_t value) {
  if (!IsIntegral(dtype)) return Const(dtype, static_cast<double>(value));
  return graph_.Add(OpCode::kConstant, {dtype, {}}, {}, {{"value", value}});
}

Op* Builder::Shape(DType dtype, int64_t value) {
  return Convert(graph_.Add(OpCode::kShapeConstant, {DType::kI64, {}}, {}, {{"value", value}}),
                 dtype);
}

Op* Builder::Limit(DType dtype, bool largest) {
  if (!IsIntegral(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return Const(dtype, largest ? infinity : -infinity);
  }
  if (dtype == DType::kBool) return ConstInt(dtype, largest);
  const int bits = 8 * ByteSize(dtype);
  if (!IsSigned(dtype))
    return ConstInt(dtype, largest ? (bits == 64 ? -1 : (int64_t{1} << bits) - 1) : 0);
  const int64_t top =
      bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  return ConstInt(dtype, largest ? top : -top - 1);
}

Op* Builder::Broadcast(Op* x, const Dims& dims) {
  if (x->type.dims == dims) return x;
  Dims to(x->type.dims.size());
  std::iota(to.begin(), to.end(), static_cast<int64_t>(dims.size() - x->type.dims.size()));
  return BroadcastInDim(x, dims, std::move(to));
}

Op* Builder::BroadcastInDim(Op* x, const Dims& result, Dims dims) {
  return graph_.Add(OpCode::kBroadcastInDim, {x->type.dtype, result}, {x},
                    {{"dims", std::move(dims)}});
}

Op* Builder::Reshape(Op* x, const Dims& dims) {
  if (x->type.dims == dims) return x;
  return graph_.Add(OpCode::kReshape, {x->type.dtype, dims}, {x});
}

Op* Builder::Transpose(Op* x, const Dims& permutation) {
  Dims dims;
  for (int64_t p : permutation) dims.push_back(x->type.dims[p]);
  return graph_.Add(OpCode::kTranspose, {x->type.dtype, dims}, {x}, {{"permutation", permutation}});
}

Op* Builder::Slice(Op* x, int64_t dim, int64_t start, int64_t limit, int64_t step) {
  const size_t rank = x->type.dims.size();
  Dims starts(rank, 0), limits = x->type.dims, steps(rank, 1), dims = x->type.dims;
  starts[dim] = start;
  limits[dim] = limit;
  steps[dim] = step;
  dims[dim] = limit <= start ? 0 : (limit - start + step - 1) / step;
  return graph_.Add(OpCode::kSlice, {x->type.dtype, dims}, {x},
                    {{"start", starts}, {"limit", limits}, {"stride", steps}});
}

Op* Builder::Concatenate(std::vector<Op*> parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  Type type = parts[0]->type;
  type.dims[dim] = 0;
  for (const Op* part : parts) type.dims[dim] += part->type.dims[dim];
  return graph_.Add(OpCode::kConcatenate, type, std::move(parts), {{"dim", dim}});
}

Op* Builder::Pad(Op* x, Op* value, const Dims& low, const Dims& high) {
  Type type = x->type;
  for (size_t d = 0; d < low.size(); ++d) type.dims[d] += low[d] + high[d];
  return graph_.Add(OpCode::kPad, type, {x, value},
                    {{"low", low}, {"high", high}, {"interior", Dims(low.size(), 0)}});
}

Op* Builder::Iota(DType dtype, const Dims& dims, int64_t dim) {
  return graph_.Add(OpCode::kIota, {dtype, dims}, {}, {{"dim", dim}});
}

Op* Builder::Reduce(Op* x, const char* kind, const Dims& dims, bool keep) {
  const std::string name = kind;
  Dims kept, ones;
  for (size_t d = 0; d < x->type.dims.size(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
    if (!reduced) kept.push_back(x->type.dims[d]);
    ones.push_back(reduced ? 1 : x->type.dims[d]);
  }
  Dims sorted = dims;
  std::sort(sorted.begin(), sorted.end());
  const bool arg = name == "argmax" || name == "argmin";
  Op* out = graph_.Add(OpCode::kReduce, {arg ? DType::kI64 : x->type.dtype, kept}, {x},
                       {{"dims", sorted}, {"kind", name}});
  return keep ? Reshape(out, ones) : out;
}

}  // namespace neuron::ir
