// Resampling to another size by taking the nearest element, and its gradient.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

using Names = std::vector<const char*>;  // the scale argument of each spatial dimension

// Index of the source element of each of `out` positions: floor(i * scale) as f32, as PyTorch
// computes it; `exact` looks at the middle of the position, (i + 0.5) * scale.
Op* NearestIndex(Context& c, int64_t in, int64_t out, const char* scale_name, bool exact) {
  auto& b = c.b;
  Op* i = b.Iota(DType::kI64, {out}, 0);
  if (in == out) return i;
  Op* scale =
      c.Has(scale_name) && c.Static(scale_name) > 0
          ? b.Convert(b.Div(b.Const(DType::kF64, 1), c.S(scale_name, DType::kF64)), DType::kF32)
          : b.Div(b.Shape(DType::kF32, in), b.Shape(DType::kF32, out));
  Op* at = b.Convert(i, DType::kF32);
  if (exact) at = b.Add(at, 0.5);
  Op* position = b.Unary(OpCode::kFloor, b.Mul(at, scale));
  return b.Min(b.Convert(position, DType::kI64), b.Shape(DType::kI64, in - 1));
}

// How a result's [N, C, ...] lies over what is resampled.
struct Grid {
  bool repeats = true;  // every element a whole number of times: a broadcast
  Dims split, from;     // then: [N, C, in, times, in, times...], and where its [N, C, in...] stand
  Dims spatial;         // else: the spatial dims of the larger side
  Dims front, back;     // permutations that bring them to the front and back
  std::vector<Op*> indices;  // into the spatial dims of the smaller side, each of shape `spatial`
};

Grid Analyze(Context& c, const Dims& in, const Dims& out, const Names& names, bool exact) {
  Grid grid;
  const size_t n = names.size();
  grid.split = {in[0], in[1]};
  grid.from = {0, 1};
  for (size_t d = 0; d < n; ++d) {
    const int64_t times = in[d + 2] > 0 ? out[d + 2] / in[d + 2] : 0;
    grid.repeats &= times > 0 && times * in[d + 2] == out[d + 2];
    grid.repeats &= !c.Has(names[d]) || c.Static(names[d]) == static_cast<double>(times);
    grid.from.push_back(static_cast<int64_t>(grid.split.size()));
    grid.split.insert(grid.split.end(), {in[d + 2], times});
  }
  if (grid.repeats) return grid;
  grid.spatial.assign(out.begin() + 2, out.end());
  grid.back = {static_cast<int64_t>(n), static_cast<int64_t>(n) + 1};
  for (size_t d = 0; d < n; ++d) {
    grid.front.push_back(static_cast<int64_t>(d) + 2);
    grid.back.push_back(static_cast<int64_t>(d));
    Op* index = NearestIndex(c, in[d + 2], out[d + 2], names[d], exact);
    grid.indices.push_back(c.b.BroadcastInDim(index, grid.spatial, {static_cast<int64_t>(d)}));
  }
  grid.front.insert(grid.front.end(), {0, 1});
  return grid;
}

void Upsample(Context& c, const Names& names, bool exact) {
  auto& b = c.b;
  Op* self = c.T("self");
  const Dims& in = self->type.dims;
  const Dims& out = c.Result().dims;
  const Grid grid = Analyze(c, in, out, names, exact);
  if (grid.repeats)
    return c.Return({b.Reshape(b.BroadcastInDim(self, grid.split, grid.from), out)});
  std::vector<Op*> operands{b.Transpose(self, grid.front)};
  operands.insert(operands.end(), grid.indices.begin(), grid.indices.end());
  ir::Type type{self->type.dtype, grid.spatial};
  type.dims.insert(type.dims.end(), {in[0], in[1]});
  c.Return({b.Transpose(b.graph().Add(OpCode::kTakeNd, type, operands), grid.back)});
}

// Each element's gradient is the sum over the places that it was taken to.
void UpsampleGradient(Context& c, const Names& names, bool exact) {
  auto& b = c.b;
  Op* grad = c.T("grad_output");
  const DType compute = ComputeType(grad->type.dtype);
  grad = b.Convert(grad, compute);
  const Dims& in = c.Result().dims;
  const Grid grid = Analyze(c, in, grad->type.dims, names, exact);
  if (grid.repeats) {
    Dims times;
    for (size_t d = 0; d < names.size(); ++d) times.push_back(grid.from[d + 2] + 1);
    Op* sum = b.Reduce(b.Reshape(grad, grid.split), "add", times);
    return c.Return({b.Reshape(b.Convert(sum, c.Result().dtype), in)});
  }
  ir::Type type{compute, Dims(in.begin() + 2, in.end())};
  type.dims.insert(type.dims.end(), {in[0], in[1]});
  std::vector<Op*> operands{b.Broadcast(b.Const(compute, 0), type.dims)};
  operands.insert(operands.end(), grid.indices.begin(), grid.indices.end());
  operands.push_back(b.Transpose(grad, grid.front));
  Op* sum = b.graph().Add(OpCode::kScatterNd, type, operands, {{"mode", std::string("add")}});
  c.Return({b.Transpose(sum, grid.back)});
}

Names NamesOf(int rank) {
  if (rank == 1) return {"scales"};
  if (rank == 2) return {"scales_h", "scales_w"};
  return {"scales_d", "scales_h", "scales_w"};
}

template <int kRank, bool kExact>
void LowerUpsample(Context& c) {
  Upsample(c, NamesOf(kRank), kExact);
}

template <int kRank, bool kExact>
void LowerUpsampleGradient(Context& c) {
  UpsampleGradient(c, NamesOf(kRank), kExact);
}

template <int kRank, bool kExact>
void Add(Table& t, const std::string& name) {
  const Names names = NamesOf(kRank);
  const std::vector<std::string> scales(names.begin(), names.end());
  t.Add(name, LowerUpsample<kRank, kExact>).static_args = scales;
  Entry& gradient = t.Add(name + "_backward", LowerUpsampleGradient<kRank, kExact>);
  gradient.static_args = scales;
  gradient.aliases = {name + "_backward.grad_input"};
}

}  // namespace

void AddResize(Table& t) {
  Add<1, false>(t, "upsample_nearest1d");
  Add<2, false>(t, "upsample_nearest2d");
  Add<3, false>(t, "upsample_nearest3d");
  Add<1, true>(t, "_upsample_nearest_exact1d");
  Add<2, true>(t, "_upsample_nearest_exact2d");
  Add<3, true>(t, "_upsample_nearest_exact3d");
}

}  // namespace neuron::lowering
