// Sums, means, extrema, tests, over some or all dimensions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Dims AllDims(const Op* x) {
  Dims dims(x->type.dims.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// The argument `name` as dims to reduce; none or an empty list means all.
Dims ReducedDims(Context& c, const char* name, const Op* x) {
  Dims dims = c.IntsOr(name, {});
  if (dims.empty()) return AllDims(x);
  for (int64_t& d : dims) d = WrapDim(d, x->type.rank());
  if (x->type.dims.empty()) dims.clear();
  return dims;
}

int64_t Count(const Op* x, const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= x->type.dims[d];
  return n;
}

// The operand in the dtype that the sum is taken in.
Op* SumOperand(Context& c) {
  Op* x = c.T("self");
  if (c.Has("dtype") || IsIntegral(x->type.dtype)) x = c.b.Convert(x, c.Result().dtype);
  return c.b.Convert(x, ComputeType(x->type.dtype));
}

void LowerSum(Context& c) {
  Op* x = SumOperand(c);
  c.Return({c.b.Reduce(x, "add", ReducedDims(c, "dim", x), c.Bool("keepdim"))});
}

void LowerMean(Context& c) {
  Op* x = SumOperand(c);
  const Dims dims = ReducedDims(c, "dim", x);
  Op* sum = c.b.Reduce(x, "add", dims);
  Op* mean = c.b.Div(sum, c.b.Shape(x->type.dtype, Count(x, dims)));
  c.Return({c.b.Reshape(c.b.Convert(mean, c.Result().dtype), c.Result().dims)});
}

void LowerProd(Context& c) {
  c.Return({c.b.Reduce(SumOperand(c), "multiply", AllDims(c.T("self")))});
}

void LowerProdDim(Context& c) {
  Op* x = SumOperand(c);
  c.Return({c.b.Reduce(x, "multiply", ReducedDims(c, "dim", x), c.Bool("keepdim"))});
}

constexpr char kMax[] = "maximum", kMin[] = "minimum", kAnd[] = "and", kOr[] = "or",
               kArgMax[] = "argmax", kArgMin[] = "argmin";

Op* ToComputeType(Context& c, Op* x) { return c.b.Convert(x, ComputeType(x->type.dtype)); }

template <const char* kKind>
void LowerExtremum(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  c.Return({c.b.Reduce(x, kKind, AllDims(x))});
}

template <const char* kKind>
void LowerExtremumDims(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  c.Return({c.b.Reduce(x, kKind, ReducedDims(c, "dim", x), c.Bool("keepdim"))});
}

// Values and the first index of each.
template <const char* kKind, const char* kArgKind>
void LowerExtremumDim(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  const Dims dims = ReducedDims(c, "dim", x);
  c.Return({c.b.Reduce(x, kKind, dims, c.Bool("keepdim")),
            c.b.Reduce(x, kArgKind, dims, c.Bool("keepdim"))});
}

template <const char* kKind>
void LowerArg(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  const Dims dims = c.Has("dim") ? ReducedDims(c, "dim", x) : AllDims(x);
  c.Return({c.b.Reshape(c.b.Reduce(x, kKind, dims), c.Result().dims)});
}

template <const char* kKind>
void LowerTest(Context& c) {
  Op* x = c.b.Convert(c.T("self"), DType::kBool);
  c.Return({c.b.Reduce(x, kKind, AllDims(x))});
}

template <const char* kKind>
void LowerTestDim(Context& c) {
  Op* x = c.b.Convert(c.T("self"), DType::kBool);
  c.Return({c.b.Reduce(x, kKind, ReducedDims(c, "dim", x), c.Bool("keepdim"))});
}

// Variance in two passes: the mean first, then the squared distances from it.
Op* Variance(Context& c, Op* x, const Dims& dims, Op** mean) {
  auto& b = c.b;
  Op* n = b.Shape(x->type.dtype, Count(x, dims));
  *mean = b.Div(b.Reduce(x, "add", dims, true), n);
  Op* distance = b.Sub(x, *mean);
  Op* squares = b.Reduce(b.Mul(distance, distance), "add", dims, true);
  Op* correction =
      c.Has("correction") ? c.S("correction", x->type.dtype) : b.Const(x->type.dtype, 1);
  return b.Div(squares, b.Max(b.Sub(n, correction), b.Const(x->type.dtype, 0)));
}

void LowerVar(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  Op* mean;
  Op* var = Variance(c, x, ReducedDims(c, "dim", x), &mean);
  c.Return({c.b.Reshape(c.b.Convert(var, c.Result().dtype), c.Result().dims)});
}

void LowerStd(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  Op* mean;
  Op* std = c.b.Unary(OpCode::kSqrt, Variance(c, x, ReducedDims(c, "dim", x), &mean));
  c.Return({c.b.Reshape(c.b.Convert(std, c.Result().dtype), c.Result().dims)});
}

void LowerVarMean(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  Op* mean;
  Op* var = Variance(c, x, ReducedDims(c, "dim", x), &mean);
  c.Return({c.b.Reshape(c.b.Convert(var, c.Result(0).dtype), c.Result(0).dims),
            c.b.Reshape(c.b.Convert(mean, c.Result(1).dtype), c.Result(1).dims)});
}

void LowerStdMean(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  Op* mean;
  Op* std = c.b.Unary(OpCode::kSqrt, Variance(c, x, ReducedDims(c, "dim", x), &mean));
  c.Return({c.b.Reshape(c.b.Convert(std, c.Result(0).dtype), c.Result(0).dims),
            c.b.Reshape(c.b.Convert(mean, c.Result(1).dtype), c.Result(1).dims)});
}

void LowerAminmax(Context& c) {
  Op* x = ToComputeType(c, c.T("self"));
  const Dims dims = c.Has("dim") ? ReducedDims(c, "dim", x) : AllDims(x);
  const auto extremum = [&](const char* kind, size_t i) {
    return c.b.Reshape(c.b.Reduce(x, kind, dims), c.Result(i).dims);
  };
  c.Return({extremum(kMin, 0), extremum(kMax, 1)});
}

// (sum |x|^ord)^(1/ord); ord 0 counts what is not 0, infinities give the largest and the smallest.
void LowerVectorNorm(Context& c) {
  auto& b = c.b;
  Op* x = c.T("self");
  const DType dtype = c.Has("dtype") ? c.Result().dtype : x->type.dtype;
  x = b.Unary(OpCode::kAbs, b.Convert(b.Convert(x, dtype), ComputeType(dtype)));
  const DType type = x->type.dtype;
  const Dims dims = ReducedDims(c, "dim", x);
  const double ord = c.Static("ord");
  Op* out;
  if (std::isinf(ord)) {
    out = b.Reduce(x, ord > 0 ? kMax : kMin, dims);
  } else if (ord == 0) {
    Op* counted = b.Compare("NE", x, b.Const(type, 0));
    out = b.Reduce(b.Convert(counted, type), "add", dims);
  } else if (ord == 1) {
    out = b.Reduce(x, "add", dims);
  } else if (ord == 2) {
    out = b.Unary(OpCode::kSqrt, b.Reduce(b.Mul(x, x), "add", dims));
  } else {
    Op* powers = b.Binary(OpCode::kPower, x, b.Const(type, ord));
    out = b.Binary(OpCode::kPower, b.Reduce(powers, "add", dims), b.Const(type, 1 / ord));
  }
  c.Return({b.Reshape(b.Convert(out, c.Result().dtype), c.Result().dims)});
}

}  // namespace

void AddReductions(Table& t) {
  t.Add("sum.dim_IntList", LowerSum).aliases = {"sum.IntList_out"};
  t.Add("mean.dim", LowerMean);
  t.Add("prod", LowerProd);
  t.Add("prod.dim_int", LowerProdDim).aliases = {"prod.int_out"};
  t.Add("max", LowerExtremum<kMax>).aliases = {"max.unary_out"};
  t.Add("min", LowerExtremum<kMin>).aliases = {"min.unary_out"};
  t.Add("amax", LowerExtremumDims<kMax>);
  t.Add("amin", LowerExtremumDims<kMin>);
  t.Add("max.dim", LowerExtremumDim<kMax, kArgMax>).aliases = {"max.dim_max"};
  t.Add("min.dim", LowerExtremumDim<kMin, kArgMin>).aliases = {"min.dim_min"};
  t.Add("argmax", LowerArg<kArgMax>);
  t.Add("argmin", LowerArg<kArgMin>);
  t.Add("all", LowerTest<kAnd>).aliases = {"all.all_out"};
  t.Add("any", LowerTest<kOr>).aliases = {"any.all_out"};
  t.Add("all.dim", LowerTestDim<kAnd>).aliases = {"all.out"};
  t.Add("any.dim", LowerTestDim<kOr>).aliases = {"any.out"};
  t.Add("all.dims", LowerTestDim<kAnd>);
  t.Add("any.dims", LowerTestDim<kOr>);
  t.Add("var.correction", LowerVar);
  t.Add("std.correction", LowerStd);
  t.Add("var_mean.correction", LowerVarMean);
  t.Add("std_mean.correction", LowerStdMean);
  t.Add("aminmax", LowerAminmax);
  t.Add("linalg_vector_norm", LowerVectorNorm).static_args = {"ord"};
}

}  // namespace neuron::lowering
