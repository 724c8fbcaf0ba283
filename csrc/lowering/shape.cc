// Ops that move elements without computing: concatenation, padding, triangles.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

// Copies self into the result's dtype, shape and layout.
void LowerCopy(Context& c) { c.Return({c.T("self")}); }

void LowerCat(Context& c) {
  const ir::Type& result = c.Result();
  std::vector<Op*> parts;
  DType common = DType::kBool;
  ResultType type(c.default_float());
  for (const TensorArg& tensor : c.TensorList("tensors")) {
    type.Add(tensor);
    // An empty 1-dim tensor joins anything, as PyTorch has always allowed.
    if (tensor.value->type.dims == Dims{0} && result.rank() != 1) continue;
    parts.push_back(tensor.value);
  }
  common = type.Get();
  for (Op*& part : parts) part = c.b.Convert(c.b.Convert(part, common), result.dtype);
  if (parts.empty()) return c.Return({c.b.Broadcast(c.b.Const(result.dtype, 0), result.dims)});
  c.Return({c.b.Concatenate(parts, WrapDim(c.Int("dim"), result.rank()))});
}

void LowerConstantPad(Context& c) {
  Op* self = c.T("self");
  const Dims pad = c.Ints("pad");
  const size_t rank = self->type.dims.size();
  Dims low(rank, 0), high(rank, 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    low[rank - 1 - i] = pad[2 * i];
    high[rank - 1 - i] = pad[2 * i + 1];
  }
  c.Return({c.b.Pad(self, c.S("value", self->type.dtype), low, high)});
}

// Keeps the elements at column - row <= diagonal (lower) or >= diagonal (upper).
template <bool kLower>
void LowerTriangle(Context& c) {
  auto& b = c.b;
  Op* self = c.T("self");
  const Dims& dims = self->type.dims;
  const int64_t rank = self->type.rank();
  Op* row = b.Iota(DType::kI64, dims, rank - 2);
  Op* column = b.Iota(DType::kI64, dims, rank - 1);
  Op* diagonal = b.Shape(DType::kI64, c.Int("diagonal"));
  Op* keep = b.Compare(kLower ? "LE" : "GE", b.Sub(column, row), diagonal);
  c.Return({b.Select(keep, self, b.Const(self->type.dtype, 0))});
}

void LowerFlip(Context& c) {
  Op* self = c.T("self");
  Dims dims = c.Ints("dims");
  for (int64_t& d : dims) d = WrapDim(d, self->type.rank());
  if (self->type.dims.empty()) return c.Return({self});
  c.Return({c.b.graph().Add(OpCode::kReverse, self->type, {self}, {{"dims", dims}})});
}

// Rotates each of dims by its shift; without dims the elements in row-major order.
void LowerRoll(Context& c) {
  auto& b = c.b;
  Op* x = c.T("self");
  const Dims shifts = c.Ints("shifts"), dims = c.IntsOr("dims", {});
  const Dims shape = x->type.dims;
  if (x->type.NumElements() == 0 || shape.empty()) return c.Return({x});
  if (dims.empty()) x = b.Reshape(x, {x->type.NumElements()});
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t dim = dims.empty() ? 0 : WrapDim(dims[i], x->type.rank());
    const int64_t size = x->type.dims[static_cast<size_t>(dim)];
    const int64_t start = ((-shifts[i]) % size + size) % size;
    if (start == 0) continue;
    x = b.Concatenate({b.Slice(x, dim, start, size), b.Slice(x, dim, 0, start)}, dim);
  }
  c.Return({b.Reshape(x, shape)});
}

}  // namespace

void AddShapes(Table& t) {
  t.Add("neuron::copy.out", LowerCopy).moves_only = true;
  t.Add("cat", LowerCat).moves_only = true;
  t.Add("constant_pad_nd", LowerConstantPad);
  t.Add("tril", LowerTriangle<true>).moves_only = true;
  t.Add("triu", LowerTriangle<false>).moves_only = true;
  t.Add("flip", LowerFlip).moves_only = true;
  t.Add("roll", LowerRoll).moves_only = true;
}

}  // namespace neuron::lowering
