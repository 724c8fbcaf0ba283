// Indirect access, reductions and sorting: operations with regions or with index arithmetic.
#include <limits>

#include "ir/stablehlo_emit.h"
#include "ir/stablehlo_text.h"

namespace neuron::ir::hlo {
namespace {

constexpr DType kIndex = DType::kI64;

Dims Range(size_t begin, size_t end) {
  Dims out;
  for (size_t i = begin; i < end; ++i) out.push_back(static_cast<int64_t>(i));
  return out;
}

Attribute Number(DType dtype, double value) {
  if (IsIntegral(dtype)) return static_cast<int64_t>(value);
  return value;
}

// The smallest or the largest value of the dtype, infinities included.
Attribute Limit(DType dtype, bool largest) {
  if (!IsIntegral(dtype)) {
    const double infinity = std::numeric_limits<double>::infinity();
    return largest ? infinity : -infinity;
  }
  if (dtype == DType::kBool) return static_cast<int64_t>(largest);
  const int bits = 8 * ByteSize(dtype);
  if (!IsSigned(dtype)) {
    if (!largest) return int64_t{0};
    return bits == 64 ? int64_t{-1} : (int64_t{1} << bits) - 1;
  }
  const int64_t top =
      bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  return largest ? top : -top - 1;
}

// What leaves the other operand of a reduction as it is.
Attribute Identity(std::string_view kind, DType dtype) {
  if (kind == "multiply") return Number(dtype, 1);
  if (kind == "maximum") return Limit(dtype, false);
  if (kind == "minimum") return Limit(dtype, true);
  if (kind == "and")
    return dtype == DType::kBool ? int64_t{1}
           : IsSigned(dtype)     ? int64_t{-1}
                                 : std::get<int64_t>(Limit(dtype, true));
  return Number(dtype, 0);
}

}  // namespace

std::string Emitter::Index(const std::string& x, const Type& type, int64_t size, bool wrap) {
  const Type index{kIndex, type.dims};
  const std::string value = Convert(x, type, kIndex);
  if (!wrap) return value;
  const std::string negative = Compare("LT", value, Constant(index, int64_t{0}), index);
  return Select(negative, Simple("add", {value, Constant(index, size)}, index), value, index);
}

std::string Emitter::EmitTake(const Op& op, const Names& a) {
  const Type& from = op.operands[0]->type;
  const Type& indices = op.operands[1]->type;
  const auto dim = static_cast<size_t>(op.Int("dim"));
  const bool wrap = op.Has("wrap") && op.Int("wrap") == 1;
  const std::string index = Index(a[1], indices, from.dims[dim], wrap);
  Dims offsets = Range(0, dim), sizes = from.dims;
  for (size_t d = dim + indices.dims.size(); d < op.type.dims.size(); ++d)
    offsets.push_back(static_cast<int64_t>(d));
  sizes[dim] = 1;
  return Line(StrCat("\"stablehlo.gather\"(", a[0], ", ", index,
                     ") <{dimension_numbers = #stablehlo.gather<offset_dims = [", List(offsets),
                     "], collapsed_slice_dims = [", dim, "], start_index_map = [", dim,
                     "], index_vector_dim = ", indices.rank(), ">, slice_sizes = array<i64: ",
                     List(sizes), ">, indices_are_sorted = false}> : (",
                     TypeNames({from, {kIndex, indices.dims}}), ") -> ", TypeName(op.type)));
}

std::string Emitter::Stack(const Names& indices, const Dims& shape, size_t count) {
  Dims column = shape, all = shape;
  column.push_back(1);
  all.push_back(static_cast<int64_t>(count));
  Names columns;
  for (const std::string& index : indices)
    columns.push_back(Reshape(index, {kIndex, shape}, column));
  if (count == 1) return columns[0];
  const std::vector<Type> types(count, {kIndex, column});
  return Line(StrCat("stablehlo.concatenate ", Join(columns), ", dim = ", shape.size(), " : (",
                     TypeNames(types), ") -> ", TypeName({kIndex, all})));
}

std::string Emitter::Coordinates(const std::string& indices, const Type& type, size_t dim) {
  Names columns;
  for (size_t d = 0; d < type.dims.size(); ++d) {
    columns.push_back(d == dim ? Convert(indices, type, kIndex) : Iota({kIndex, type.dims}, d));
  }
  return Stack(columns, type.dims, type.dims.size());
}

namespace {

// A gather of the elements (or of slices of all dimensions from `indexed` on) at coordinates of
// type [S.., indexed].
std::string GatherText(const std::string& operand, const std::string& coordinates, const Type& from,
                       const Dims& coordinate_dims, size_t indexed, const Type& result) {
  const size_t batch = coordinate_dims.size() - 1;
  Dims sizes = from.dims;
  for (size_t d = 0; d < indexed; ++d) sizes[d] = 1;
  return StrCat("\"stablehlo.gather\"(", operand, ", ", coordinates,
                ") <{dimension_numbers = #stablehlo.gather<offset_dims = [",
                List(Range(batch, result.dims.size())), "], collapsed_slice_dims = [",
                List(Range(0, indexed)), "], start_index_map = [", List(Range(0, indexed)),
                "], index_vector_dim = ", batch, ">, slice_sizes = array<i64: ", List(sizes),
                ">, indices_are_sorted = false}> : (", TypeNames({from, {kIndex, coordinate_dims}}),
                ") -> ", TypeName(result));
}

}  // namespace

std::string Emitter::EmitTakeAlong(const Op& op, const Names& a) {
  const Type& from = op.operands[0]->type;
  const Type& indices = op.operands[1]->type;
  const std::string at = Coordinates(a[1], indices, static_cast<size_t>(op.Int("dim")));
  Dims dims = indices.dims;
  dims.push_back(from.rank());
  return Line(GatherText(a[0], at, from, dims, from.dims.size(), op.type));
}

std::string Emitter::EmitTakeNd(const Op& op, const Names& a) {
  const Type& from = op.operands[0]->type;
  const Type& indices = op.operands[1]->type;
  const size_t count = a.size() - 1;
  Names columns;
  for (size_t i = 0; i < count; ++i)
    columns.push_back(Index(a[i + 1], indices, from.dims[i], true));
  Dims dims = indices.dims;
  dims.push_back(static_cast<int64_t>(count));
  return Line(GatherText(a[0], Stack(columns, indices.dims, count), from, dims, count, op.type));
}

std::string Emitter::ScatterInto(const Op& op, const Names& a, const std::string& coordinates,
                                 const Dims& coordinate_dims, size_t indexed) {
  const Type& into = op.operands[0]->type;
  const Type& updates = op.operands.back()->type;
  const size_t batch = coordinate_dims.size() - 1;
  const std::string& mode = op.String("mode");
  const std::string name = Fresh(), old = Fresh(), update = Fresh();
  const Type element{into.dtype, {}};
  Raw(StrCat(name, " = \"stablehlo.scatter\"(", a[0], ", ", coordinates, ", ", a.back(),
             ") <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [",
             List(Range(batch, updates.dims.size())), "], inserted_window_dims = [",
             List(Range(0, indexed)), "], scatter_dims_to_operand_dims = [",
             List(Range(0, indexed)), "], index_vector_dim = ", batch,
             ">, indices_are_sorted = false, unique_indices = false}> ({"));
  Raw(StrCat("^bb0(", old, ": ", TypeName(element), ", ", update, ": ", TypeName(element), "):"));
  const std::string result = mode == "set" ? update : Simple(mode, {old, update}, element);
  Raw(StrCat("  stablehlo.return ", result, " : ", TypeName(element)));
  Raw(StrCat("}) : (", TypeNames({into, {kIndex, coordinate_dims}, updates}), ") -> ",
             TypeName(into)));
  return name;
}

std::string Emitter::EmitScatter(const Op& op, const Names& a) {
  const Type& indices = op.operands[1]->type;
  Dims dims = indices.dims;
  dims.push_back(indices.rank());
  const std::string at = Coordinates(a[1], indices, static_cast<size_t>(op.Int("dim")));
  return ScatterInto(op, a, at, dims, indices.dims.size());
}

std::string Emitter::EmitScatterNd(const Op& op, const Names& a) {
  const Type& into = op.operands[0]->type;
  const Type& indices = op.operands[1]->type;
  const size_t count = a.size() - 2;
  Names columns;
  for (size_t i = 0; i < count; ++i)
    columns.push_back(Index(a[i + 1], indices, into.dims[i], true));
  Dims dims = indices.dims;
  dims.push_back(static_cast<int64_t>(count));
  return ScatterInto(op, a, Stack(columns, indices.dims, count), dims, count);
}

std::string Emitter::EmitReduce(const Op& op, const Names& a) {
  const std::string& kind = op.String("kind");
  if (kind == "argmax" || kind == "argmin") return EmitArgReduce(op, a);
  const Type& from = op.operands[0]->type;
  const bool half = from.dtype == DType::kBF16 || from.dtype == DType::kF16;
  const DType dtype = half ? DType::kF32 : from.dtype;
  const std::string wide = Convert(a[0], from, dtype);
  const std::string init = Constant({dtype, {}}, Identity(kind, dtype));
  const Type result{dtype, op.type.dims};
  const std::string out =
      Line(StrCat("stablehlo.reduce(", wide, " init: ", init, ") applies stablehlo.", kind,
                  " across dimensions = [", List(op.Ints("dims")), "] : (",
                  TypeNames({{dtype, from.dims}, {dtype, {}}}), ") -> ", TypeName(result)));
  return Convert(out, result, op.type.dtype);
}

// Reduces pairs of value and position; of equal values the earlier position wins.
std::string Emitter::EmitArgReduce(const Op& op, const Names& a) {
  const Type& from = op.operands[0]->type;
  const bool largest = op.String("kind") == "argmax";
  const Type positions{kIndex, from.dims}, element{from.dtype, {}}, position{kIndex, {}};
  std::string at = Constant(positions, int64_t{0});
  int64_t stride = 1;
  const Dims& dims = op.Ints("dims");
  for (size_t i = dims.size(); i-- > 0;) {
    const auto d = static_cast<size_t>(dims[i]);
    const std::string step =
        Simple("multiply", {Iota(positions, d), Constant(positions, stride)}, positions);
    at = Simple("add", {at, step}, positions);
    stride *= from.dims[d];
  }
  const std::string worst = Constant(element, Limit(from.dtype, !largest));
  const std::string last = Constant(position, std::numeric_limits<int64_t>::max());
  const std::string out = Fresh(), x = Fresh(), i = Fresh(), y = Fresh(), j = Fresh();
  Raw(StrCat(out, ":2 = \"stablehlo.reduce\"(", Join({a[0], at, worst, last}),
             ") <{dimensions = array<i64", dims.empty() ? "" : ": ", List(dims), ">}> ({"));
  Raw(StrCat("^bb0(", x, ": ", TypeName(element), ", ", i, ": ", TypeName(position), ", ", y, ": ",
             TypeName(element), ", ", j, ": ", TypeName(position), "):"));
  const Type flag{DType::kBool, {}};
  const std::string right = Before(y, x, element, largest, true);
  const std::string left = Before(x, y, element, largest, true);
  const std::string tie = Simple("not", {Simple("or", {left, right}, flag)}, flag);
  const std::string earlier = Simple("and", {tie, Compare("LT", j, i, position)}, flag);
  const std::string take = Simple("or", {right, earlier}, flag);
  const std::string value = Select(take, y, x, element);
  const std::string where = Select(take, j, i, position);
  Raw(StrCat("  stablehlo.return ", value, ", ", where, " : ", TypeNames({element, position})));
  Raw(StrCat("}) : (", TypeNames({from, positions, element, position}), ") -> (",
             TypeNames({{from.dtype, op.type.dims}, op.type}), ")"));
  return out + "#1";
}

std::string Emitter::EmitSort(const Op& op, const Names& a) {
  const Type& from = op.operands[0]->type;
  const bool positions = op.code == OpCode::kArgSort;
  const auto dim = static_cast<size_t>(op.Int("dim"));
  const bool descending = op.Int("descending") == 1;
  const Type at{kIndex, from.dims}, element{from.dtype, {}}, position{kIndex, {}};
  Names operands{a[0]};
  std::vector<Type> types{from};
  if (positions) {
    operands.push_back(Iota(at, dim));
    types.push_back(at);
  }
  const std::string out = Fresh(), x = Fresh(), y = Fresh();
  std::string block = StrCat(x, ": ", TypeName(element), ", ", y, ": ", TypeName(element));
  if (positions) {
    for (int k = 0; k < 2; ++k) block += StrCat(", ", Fresh(), ": ", TypeName(position));
  }
  Raw(StrCat(out, positions ? ":2" : "", " = \"stablehlo.sort\"(", Join(operands),
             ") <{dimension = ", dim, " : i64, is_stable = true}> ({"));
  Raw(StrCat("^bb0(", block, "):"));
  // NaN is the largest: first in a descending order, last in an ascending one.
  const std::string first = Before(x, y, element, descending, descending);
  Raw(StrCat("  stablehlo.return ", first, " : tensor<i1>"));
  Raw(StrCat("}) : (", TypeNames(types), ") -> (", TypeNames(types), ")"));
  return positions ? out + "#1" : out;
}

}  // namespace neuron::ir::hlo
