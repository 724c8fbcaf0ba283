// Sorting and running sums.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Op* AtLeast1d(Context& c, Op* x) { return x->type.dims.empty() ? c.b.Reshape(x, {1}) : x; }

Op* ArgSort(Context& c, Op* x, int64_t dim, bool descending) {
  return c.b.graph().Add(OpCode::kArgSort, {DType::kI64, x->type.dims}, {x},
                         {{"dim", dim}, {"descending", int64_t{descending}}});
}

Op* TakeAlong(Context& c, Op* x, Op* index, int64_t dim) {
  return c.b.graph().Add(OpCode::kTakeAlong, {x->type.dtype, index->type.dims}, {x, index},
                         {{"dim", dim}});
}

// Values and indices of the sorted elements [start, limit) along dim.
void ReturnSorted(Context& c, bool descending, int64_t start, int64_t limit) {
  Op* x = AtLeast1d(c, c.T("self"));
  const int64_t dim = WrapDim(c.Int("dim"), x->type.rank());
  Op* index = ArgSort(c, x, dim, descending);
  if (limit >= 0) index = c.b.Slice(index, dim, start, limit);
  Op* values = TakeAlong(c, x, index, dim);
  c.Return({c.b.Reshape(values, c.Result(0).dims), c.b.Reshape(index, c.Result(1).dims)});
}

void LowerSort(Context& c) { ReturnSorted(c, c.Bool("descending"), 0, -1); }
void LowerTopk(Context& c) { ReturnSorted(c, c.Bool("largest"), 0, c.Int("k")); }
void LowerKthValue(Context& c) { ReturnSorted(c, false, c.Int("k") - 1, c.Int("k")); }

void LowerArgSort(Context& c) {
  Op* x = AtLeast1d(c, c.T("self"));
  const int64_t dim = WrapDim(c.Int("dim"), x->type.rank());
  c.Return({c.b.Reshape(ArgSort(c, x, dim, c.Bool("descending")), c.Result().dims)});
}

constexpr const char kSum[] = "add", kProduct[] = "multiply", kLogSumExp[] = "logaddexp";

template <const char* kKind>
void LowerCumulative(Context& c) {
  const DType result = c.Result().dtype;
  const DType type = IsFloat(result) ? ComputeType(result) : DType::kI64;
  Op* x = c.T("self");
  // As on the CPU the elements are converted to the result's dtype first.
  x = AtLeast1d(c, c.b.Convert(c.b.Convert(x, result), type));
  const int64_t dim = WrapDim(c.Int("dim"), x->type.rank());
  Op* out =
      c.b.graph().Add(OpCode::kCumSum, x->type, {x}, {{"dim", dim}, {"kind", std::string(kKind)}});
  c.Return({c.b.Reshape(out, c.Result().dims)});
}

}  // namespace

void AddOrder(Table& t) {
  t.Add("sort", LowerSort);
  t.Add("sort.stable", LowerSort);
  t.Add("argsort", LowerArgSort);
  t.Add("argsort.stable", LowerArgSort);
  t.Add("topk", LowerTopk);
  t.Add("kthvalue", LowerKthValue);
  t.Add("cumsum", LowerCumulative<kSum>);
  t.Add("cumprod", LowerCumulative<kProduct>);
  t.Add("logcumsumexp", LowerCumulative<kLogSumExp>);
}

}  // namespace neuron::lowering
