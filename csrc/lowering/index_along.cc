// Writing whole slices at the positions that a one-dimensional index names along one dimension.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Op* AtLeast1d(Context& c, Op* x) { return x->type.dims.empty() ? c.b.Reshape(x, {1}) : x; }

// self with `source` set or added at index[i] along dim. The source has self's shape but for dim,
// where it has the index's size, or is a number. Negative indices count from the end if `wrap`.
void WriteAlong(Context& c, Op* source, const char* mode, bool wrap = false) {
  auto& b = c.b;
  Op* self = AtLeast1d(c, c.T("self"));
  Op* index = AtLeast1d(c, b.Convert(c.T("index"), DType::kI64));
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  if (wrap) {
    Op* size = b.Shape(DType::kI64, self->type.dims[static_cast<size_t>(dim)]);
    Op* negative = b.Compare("LT", index, b.ConstInt(DType::kI64, 0));
    index = b.Select(negative, b.Add(index, size), index);
  }
  Dims dims = self->type.dims;
  dims[static_cast<size_t>(dim)] = index->type.dims[0];
  source = b.Convert(source, self->type.dtype);
  source = source->type.dims.empty() ? b.Broadcast(source, dims) : b.Reshape(source, dims);
  Op* out = b.graph().Add(OpCode::kScatter, self->type,
                          {self, b.BroadcastInDim(index, dims, {dim}), source},
                          {{"dim", dim}, {"mode", std::string(mode)}});
  c.Return({b.Reshape(out, c.Result().dims)});
}

void LowerIndexAdd(Context& c) {
  Op* source = c.T("source");
  if (!c.Is("alpha", 1)) {
    const DType dtype = source->type.dtype;
    Op* wide = c.b.Convert(source, ComputeType(dtype));
    source = c.b.Convert(c.b.Mul(wide, c.S("alpha", wide->type.dtype)), dtype);
  }
  WriteAlong(c, source, "add");
}

void LowerIndexCopy(Context& c) { WriteAlong(c, c.T("source"), "set"); }

void LowerIndexFillScalar(Context& c) {
  WriteAlong(c, c.S("value", c.T("self")->type.dtype), "set", true);
}

void LowerIndexFillTensor(Context& c) { WriteAlong(c, c.T("value"), "set", true); }

}  // namespace

void AddIndexAlong(Table& t) {
  t.Add("index_add", LowerIndexAdd);
  t.Add("index_copy", LowerIndexCopy).moves_only = true;
  t.Add("index_fill_.int_Scalar", LowerIndexFillScalar);
  t.Add("index_fill_.int_Tensor", LowerIndexFillTensor).moves_only = true;
}

}  // namespace neuron::lowering
