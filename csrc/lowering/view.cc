// Views and copies, for whole graphs: eager never lowers a view. The results' shapes come from the
// meta kernels, so most of these only say which elements stand where.
#include <algorithm>
#include <limits>
#include <numeric>

#include "lowering/table.h"

namespace neuron::lowering {
namespace {

void LowerIdentity(Context& c) { c.Return({c.T("self")}); }

void LowerReshape(Context& c) { c.Return({c.b.Reshape(c.T("self"), c.Result().dims)}); }

void LowerExpand(Context& c) { c.Return({c.b.Broadcast(c.T("self"), c.Result().dims)}); }

void LowerPermute(Context& c) {
  Op* self = c.T("self");
  Dims dims = c.Ints("dims");
  for (int64_t& d : dims) d = WrapDim(d, self->type.rank());
  c.Return({c.b.Transpose(self, dims)});
}

Op* Swap(Context& c, Op* x, int64_t a, int64_t b) {
  if (x->type.dims.size() < 2) return x;
  Dims permutation(x->type.dims.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[static_cast<size_t>(WrapDim(a, x->type.rank()))],
            permutation[static_cast<size_t>(WrapDim(b, x->type.rank()))]);
  return c.b.Transpose(x, permutation);
}

void LowerTransposeInt(Context& c) {
  c.Return({Swap(c, c.T("self"), c.Int("dim0"), c.Int("dim1"))});
}
void LowerT(Context& c) { c.Return({Swap(c, c.T("self"), 0, 1)}); }

void LowerSelect(Context& c) {
  Op* self = c.T("self");
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  int64_t index = c.Int("index");
  if (index < 0) index += self->type.dims[static_cast<size_t>(dim)];
  c.Return({c.b.Reshape(c.b.Slice(self, dim, index, index + 1), c.Result().dims)});
}

void LowerSlice(Context& c) {
  Op* self = c.T("self");
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  const int64_t size = self->type.dims[static_cast<size_t>(dim)];
  int64_t start = c.Has("start") ? c.Int("start") : 0;
  int64_t end = c.Has("end") ? c.Int("end") : std::numeric_limits<int64_t>::max();
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  c.Return({c.b.Slice(self, dim, start, end, c.Int("step"))});
}

// Parts along one dimension, their sizes as the results say.
void LowerSplit(Context& c) {
  Op* self = c.T("self");
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  std::vector<Op*> parts;
  int64_t at = 0;
  for (size_t i = 0; i < c.num_results(); ++i) {
    const int64_t size = c.Result(i).dims[static_cast<size_t>(dim)];
    parts.push_back(c.b.Slice(self, dim, at, at + size));
    at += size;
  }
  c.Return(parts);
}

void LowerUnbind(Context& c) {
  Op* self = c.T("self");
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  std::vector<Op*> parts;
  for (size_t i = 0; i < c.num_results(); ++i) {
    const auto at = static_cast<int64_t>(i);
    parts.push_back(c.b.Reshape(c.b.Slice(self, dim, at, at + 1), c.Result(i).dims));
  }
  c.Return(parts);
}

void LowerStack(Context& c) {
  std::vector<Op*> parts;
  const int64_t dim = WrapDim(c.Int("dim"), c.Result().rank());
  Dims one = c.Result().dims;
  one[static_cast<size_t>(dim)] = 1;
  for (Op* part : c.List("tensors"))
    parts.push_back(c.b.Reshape(c.b.Convert(part, c.Result().dtype), one));
  c.Return({c.b.Concatenate(parts, dim)});
}

// Each dimension as (repeats, size): a broadcast, then one reshape.
void LowerRepeat(Context& c) {
  Op* self = c.T("self");
  const Dims repeats = c.Ints("repeats");
  Dims padded(repeats.size() - self->type.dims.size(), 1);
  padded.insert(padded.end(), self->type.dims.begin(), self->type.dims.end());
  Dims wide, from;
  for (size_t d = 0; d < repeats.size(); ++d) {
    wide.push_back(repeats[d]);
    from.push_back(static_cast<int64_t>(wide.size()));
    wide.push_back(padded[d]);
  }
  c.Return(
      {c.b.Reshape(c.b.BroadcastInDim(c.b.Reshape(self, padded), wide, from), c.Result().dims)});
}

void LowerConstant(Context& c, double value) { c.Return({c.b.Const(c.Result().dtype, value)}); }
void LowerZeros(Context& c) { LowerConstant(c, 0); }
void LowerOnes(Context& c) { LowerConstant(c, 1); }
void LowerFull(Context& c) { c.Return({c.S("fill_value", c.Result().dtype)}); }
void LowerScalarTensor(Context& c) { c.Return({c.S("s", c.Result().dtype)}); }

// Gradients of views: the incoming gradient in its place, zeros elsewhere.
void LowerSliceBackward(Context& c) {
  Op* grad = c.T("grad_output");
  const int64_t dim = WrapDim(c.Int("dim"), c.Result().rank());
  const int64_t size = c.Result().dims[static_cast<size_t>(dim)];
  const int64_t step = c.Int("step");
  int64_t start = c.Int("start");
  if (start < 0) start += size;
  start = std::clamp<int64_t>(start, 0, size);
  const int64_t covered = grad->type.dims[static_cast<size_t>(dim)];
  Dims low(c.Result().dims.size(), 0), high = low, interior = low;
  low[static_cast<size_t>(dim)] = start;
  interior[static_cast<size_t>(dim)] = step - 1;
  high[static_cast<size_t>(dim)] = size - start - (covered == 0 ? 0 : (covered - 1) * step + 1);
  c.Return({c.b.graph().Add(OpCode::kPad, c.Result(), {grad, c.b.Const(grad->type.dtype, 0)},
                            {{"low", low}, {"high", high}, {"interior", interior}})});
}

// The functional form: src in self's dtype and shape.
void LowerCopy(Context& c) {
  Op* src = c.T("src");
  if (IsComplex(src->type.dtype) != IsComplex(c.Result().dtype))
    NEURON_THROW(kUnsupported, "aten::copy of ", Name(src->type.dtype), " to ",
                 Name(c.Result().dtype));
  c.Return({src});
}

void LowerSelectBackward(Context& c) {
  const int64_t dim = WrapDim(c.Int("dim"), c.Result().rank());
  int64_t index = c.Int("index");
  const int64_t size = c.Result().dims[static_cast<size_t>(dim)];
  if (index < 0) index += size;
  Dims one = c.Result().dims;
  one[static_cast<size_t>(dim)] = 1;
  Op* grad = c.b.Reshape(c.T("grad_output"), one);
  Dims low(one.size(), 0), high = low;
  low[static_cast<size_t>(dim)] = index;
  high[static_cast<size_t>(dim)] = size - index - 1;
  c.Return({c.b.Pad(grad, c.b.Const(grad->type.dtype, 0), low, high)});
}

}  // namespace

void AddViews(Table& t) {
  const auto add = [&t](const char* name, LowerFn lower) -> Entry& {
    Entry& entry = t.Add(name, lower);
    entry.graph_only = true;
    entry.moves_only = true;
    return entry;
  };
  for (const char* name :
       {"alias", "detach", "clone", "_to_copy", "lift_fresh_copy", "contiguous"}) {
    add(name, LowerIdentity);
  }
  for (const char* name :
       {"view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims"}) {
    add(name, LowerReshape);
  }
  add("copy", LowerCopy);
  add("expand", LowerExpand);
  add("permute", LowerPermute);
  add("transpose.int", LowerTransposeInt);
  add("t", LowerT);
  add("select.int", LowerSelect);
  add("slice.Tensor", LowerSlice);
  add("split.Tensor", LowerSplit);
  add("split_with_sizes", LowerSplit);
  add("unbind.int", LowerUnbind);
  add("stack", LowerStack);
  add("repeat", LowerRepeat);
  for (const char* name : {"zeros", "zeros_like", "new_zeros", "empty.memory_format", "empty_like",
                           "new_empty", "empty_strided", "new_empty_strided"}) {
    add(name, LowerZeros);
  }
  for (const char* name : {"ones", "ones_like", "new_ones"}) add(name, LowerOnes);
  for (const char* name : {"full", "full_like", "new_full"}) add(name, LowerFull);
  add("scalar_tensor", LowerScalarTensor);
  add("slice_backward", LowerSliceBackward);
  add("select_backward", LowerSelectBackward);
}

}  // namespace neuron::lowering
