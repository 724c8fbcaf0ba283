// Gathers and scatters.
#include <algorithm>
#include <numeric>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Op* Index64(Context& c, Op* index) { return c.b.Convert(index, DType::kI64); }

// 0-dim operands behave as 1-dim ones of size 1.
Op* AtLeast1d(Context& c, Op* x) { return x->type.dims.empty() ? c.b.Reshape(x, {1}) : x; }

void LowerEmbedding(Context& c) {
  Op* weight = c.T("weight");
  c.Return({c.b.graph().Add(OpCode::kTake, {weight->type.dtype, c.Result().dims},
                            {weight, Index64(c, c.T("indices"))}, {{"dim", int64_t{0}}})});
}

// The rows of grad_output summed into the rows of the weight that they were taken from; in f32 for
// bf16 and f16, as many may meet. Rows at padding_idx have no gradient.
void LowerEmbeddingGradient(Context& c) {
  auto& b = c.b;
  const ir::Type& result = c.Result();
  const int64_t count = c.T("indices")->type.NumElements(), width = result.dims[1];
  Op* index = b.Reshape(Index64(c, c.T("indices")), {count});
  Op* grad = b.Reshape(c.T("grad_output"), {count, width});
  grad = b.Convert(grad, ComputeType(grad->type.dtype));
  const DType dtype = grad->type.dtype;
  const auto sum = [&](Op* rows, int64_t columns) {
    const ir::Type type{dtype, {result.dims[0], columns}};
    Op* zeros = b.Broadcast(b.Const(dtype, 0), type.dims);
    Op* rows_of = b.BroadcastInDim(index, {count, columns}, {0});
    return b.graph().Add(OpCode::kScatter, type, {zeros, rows_of, rows},
                         {{"dim", int64_t{0}}, {"mode", std::string("add")}});
  };
  if (c.Bool("scale_grad_by_freq")) {
    Op* frequencies = sum(b.Broadcast(b.Const(dtype, 1), {count, 1}), 1);
    Op* mine = b.graph().Add(OpCode::kTake, {dtype, {count, 1}}, {frequencies, index},
                             {{"dim", int64_t{0}}});
    grad = b.Div(grad, mine);
  }
  const int64_t padding = c.Int("padding_idx");
  if (padding >= 0) {
    Op* padded = b.Compare("EQ", index, b.Shape(DType::kI64, padding));
    grad = b.Select(b.BroadcastInDim(padded, {count, width}, {0}), b.Const(dtype, 0), grad);
  }
  c.Return({sum(grad, width)});
}

void LowerIndexSelect(Context& c) {
  Op* self = AtLeast1d(c, c.T("self"));
  Op* index = AtLeast1d(c, Index64(c, c.T("index")));
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  ir::Type type = self->type;
  type.dims[dim] = index->type.dims[0];
  Op* out = c.b.graph().Add(OpCode::kTake, type, {self, index}, {{"dim", dim}});
  c.Return({c.b.Reshape(out, c.Result().dims)});
}

void LowerGather(Context& c) {
  Op* self = AtLeast1d(c, c.T("self"));
  Op* index = AtLeast1d(c, Index64(c, c.T("index")));
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  Op* out = c.b.graph().Add(OpCode::kTakeAlong, {self->type.dtype, index->type.dims}, {self, index},
                            {{"dim", dim}});
  c.Return({c.b.Reshape(out, c.Result().dims)});
}

// The source cut to the shape of the index.
Op* CutTo(Context& c, Op* source, const Dims& dims) {
  for (size_t d = 0; d < dims.size(); ++d) {
    if (source->type.dims[d] != dims[d])
      source = c.b.Slice(source, static_cast<int64_t>(d), 0, dims[d]);
  }
  return source;
}

void Scatter(Context& c, Op* source, const char* mode) {
  Op* self = AtLeast1d(c, c.T("self"));
  Op* index = AtLeast1d(c, Index64(c, c.T("index")));
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  source = source->type.dims.empty() ? c.b.Broadcast(source, index->type.dims)
                                     : CutTo(c, source, index->type.dims);
  Op* out = c.b.graph().Add(OpCode::kScatter, self->type,
                            {self, index, c.b.Convert(source, self->type.dtype)},
                            {{"dim", dim}, {"mode", std::string(mode)}});
  c.Return({c.b.Reshape(out, c.Result().dims)});
}

constexpr char kSet[] = "set", kAdd[] = "add";

template <const char* kMode>
void LowerScatterSource(Context& c) {
  Scatter(c, AtLeast1d(c, c.T("src")), kMode);
}

void LowerScatterValue(Context& c) { Scatter(c, c.S("value", c.T("self")->type.dtype), "set"); }

const char* ReduceMode(Context& c) {
  const std::string mode = c.String("reduce");
  if (mode == "add") return "add";
  if (mode == "multiply") return "multiply";
  NEURON_THROW(kInvalidArgument, "reduce argument must be either add or multiply, not '", mode,
               "'");
}

void LowerScatterReduce(Context& c) { Scatter(c, AtLeast1d(c, c.T("src")), ReduceMode(c)); }
void LowerScatterValueReduce(Context& c) {
  Scatter(c, c.S("value", c.T("self")->type.dtype), ReduceMode(c));
}

// self combined with src by a reduction that has an IR mode; without include_self what is written
// starts from the reduction's neutral element.
void LowerScatterReduceTwo(Context& c) {
  auto& b = c.b;
  const std::string reduce = c.String("reduce");
  const char* mode = reduce == "sum"    ? "add"
                     : reduce == "prod" ? "multiply"
                     : reduce == "amax" ? "maximum"
                     : reduce == "amin" ? "minimum"
                                        : nullptr;
  if (mode == nullptr) NEURON_THROW(kUnsupported, c.op(), ": no lowering of reduce='", reduce, "'");
  Op* self = AtLeast1d(c, c.T("self"));
  const DType dtype = self->type.dtype;
  Op* index = AtLeast1d(c, Index64(c, c.T("index")));
  const int64_t dim = WrapDim(c.Int("dim"), self->type.rank());
  const auto scatter = [&](Op* into, Op* source, const char* how) {
    return b.graph().Add(OpCode::kScatter, self->type, {into, index, source},
                         {{"dim", dim}, {"mode", std::string(how)}});
  };
  if (!c.Bool("include_self")) {
    Op* neutral = reduce == "sum"    ? b.Const(dtype, 0)
                  : reduce == "prod" ? b.Const(dtype, 1)
                                     : b.Limit(dtype, reduce == "amin");
    self = scatter(self, b.Broadcast(neutral, index->type.dims), "set");
  }
  Op* source = b.Convert(CutTo(c, AtLeast1d(c, c.T("src")), index->type.dims), dtype);
  c.Return({b.Reshape(scatter(self, source, mode), c.Result().dims)});
}

struct NdIndex {
  std::vector<Op*> indices;  // i64, broadcast to one shape
  Dims shape;                // of the indices
  Dims order;                // permutation of self that brings the indexed dimensions to the front
  size_t at = 0;             // where the index shape stands in the result
};

NdIndex Analyze(Context& c, const Op* self, const std::vector<Op*>& indices) {
  NdIndex out;
  Dims indexed, rest;
  for (int64_t d = 0; d < self->type.rank(); ++d) {
    Op* index = static_cast<size_t>(d) < indices.size() ? indices[d] : nullptr;
    if (index == nullptr) {
      rest.push_back(d);
      continue;
    }
    if (index->type.dtype == DType::kBool || index->type.dtype == DType::kU8) {
      NEURON_THROW(kUnsupported, c.op(),
                   ": mask indices are turned into positions before lowering");
    }
    indexed.push_back(d);
    out.indices.push_back(Index64(c, index));
    out.shape = BroadcastDims(out.shape, index->type.dims);
  }
  for (Op*& index : out.indices) index = c.b.Broadcast(index, out.shape);
  const bool adjacent =
      indexed.back() - indexed.front() + 1 == static_cast<int64_t>(indexed.size());
  out.at = adjacent ? static_cast<size_t>(indexed.front()) : 0;
  out.order = indexed;
  out.order.insert(out.order.end(), rest.begin(), rest.end());
  return out;
}

// Permutation that moves the `n` leading dimensions behind the next `at` ones.
Dims MoveBack(size_t n, size_t at, size_t rank) {
  Dims permutation;
  for (size_t i = 0; i < at; ++i) permutation.push_back(static_cast<int64_t>(n + i));
  for (size_t i = 0; i < n; ++i) permutation.push_back(static_cast<int64_t>(i));
  for (size_t i = n + at; i < rank; ++i) permutation.push_back(static_cast<int64_t>(i));
  return permutation;
}

void LowerIndex(Context& c) {
  Op* self = c.T("self");
  const NdIndex nd = Analyze(c, self, c.List("indices"));
  Op* table = c.b.Transpose(self, nd.order);
  ir::Type type{self->type.dtype, nd.shape};
  type.dims.insert(type.dims.end(),
                   table->type.dims.begin() + static_cast<int64_t>(nd.indices.size()),
                   table->type.dims.end());
  std::vector<Op*> operands{table};
  operands.insert(operands.end(), nd.indices.begin(), nd.indices.end());
  Op* taken = c.b.graph().Add(OpCode::kTakeNd, type, std::move(operands));
  c.Return({c.b.Transpose(taken, MoveBack(nd.shape.size(), nd.at, type.dims.size()))});
}

Dims Inverse(const Dims& permutation) {
  Dims out(permutation.size());
  for (size_t i = 0; i < permutation.size(); ++i)
    out[static_cast<size_t>(permutation[i])] = static_cast<int64_t>(i);
  return out;
}

// The values written where self[indices] reads; with accumulate added there, in row-major order.
void LowerIndexPut(Context& c) {
  Op* self = c.T("self");
  const NdIndex nd = Analyze(c, self, c.List("indices"));
  Op* table = c.b.Transpose(self, nd.order);
  ir::Type type{self->type.dtype, nd.shape};
  type.dims.insert(type.dims.end(),
                   table->type.dims.begin() + static_cast<int64_t>(nd.indices.size()),
                   table->type.dims.end());
  const Dims back = MoveBack(nd.shape.size(), nd.at, type.dims.size());
  Dims result;
  for (int64_t d : back) result.push_back(type.dims[static_cast<size_t>(d)]);
  Op* values = c.b.Broadcast(c.b.Convert(c.T("values"), self->type.dtype), result);
  std::vector<Op*> operands{table};
  operands.insert(operands.end(), nd.indices.begin(), nd.indices.end());
  operands.push_back(c.b.Transpose(values, Inverse(back)));
  Op* put = c.b.graph().Add(OpCode::kScatterNd, table->type, std::move(operands),
                            {{"mode", std::string(c.Bool("accumulate") ? "add" : "set")}});
  c.Return({c.b.Transpose(put, Inverse(nd.order))});
}

void LowerNonzero(Context& c) {
  c.Return({c.b.graph().Add(OpCode::kNonzero, c.Result(), {c.T("self")})});
}

}  // namespace

void AddIndexing(Table& t) {
  t.Add("embedding", LowerEmbedding).moves_only = true;
  t.Add("embedding_dense_backward", LowerEmbeddingGradient);
  t.Add("index_select", LowerIndexSelect).moves_only = true;
  t.Add("gather", LowerGather).moves_only = true;
  t.Add("scatter.src", LowerScatterSource<kSet>).moves_only = true;
  t.Add("scatter.value", LowerScatterValue);
  t.Add("scatter.reduce", LowerScatterReduce);
  t.Add("scatter.value_reduce", LowerScatterValueReduce);
  t.Add("scatter_reduce.two", LowerScatterReduceTwo);
  t.Add("scatter_add", LowerScatterSource<kAdd>);
  t.Add("neuron::nonzero", LowerNonzero).moves_only = true;
  t.Add("neuron::index", LowerIndex).moves_only = true;
  t.Add("neuron::index_put_", LowerIndexPut);
}

}  // namespace neuron::lowering
