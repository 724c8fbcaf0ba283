// Writes the operations of one function's body.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"

namespace neuron::ir::hlo {

// Functions that composites name, each once. Keeps their text until the module is printed.
class Library {
 public:
  // The symbol of a private function with the graph's parameters and outputs; equal graphs share
  // one. `name` is what its symbol begins with.
  std::string Function(const Graph& graph, std::string_view name);
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::unordered_map<std::string, std::string> symbols_;  // text of the graph -> symbol
  std::vector<std::string> texts_;
};

using Names = std::vector<std::string>;

class Emitter {
 public:
  explicit Emitter(Library& library) : library_(library) {}

  // Writes the graph's operations and returns the names of its outputs. `arguments`: the names of
  // its parameters, then of its scalars.
  Names EmitGraph(const Graph& graph, const Names& arguments);
  const std::string& text() const { return text_; }

 private:
  // Operations [begin, end) as one stablehlo.composite.
  void EmitRegion(const Graph& graph, size_t begin, size_t end,
                  std::unordered_map<const Op*, std::string>& names);
  Names EmitComposite(std::string_view name, const std::string& attributes, const Graph& body,
                      const Names& arguments);

  // The name of the operation's result. The operands' names are in `a`.
  std::string Emit(const Op& op, const Names& a);
  std::string EmitDirect(const Op& op, const Names& a);
  // Division and remainder of integers, for all divisors.
  std::string EmitDivision(const Op& op, const Names& a);
  std::string EmitDot(const Op& op, const Names& a);
  std::string EmitConvolution(const Op& op, const Names& a);
  std::string EmitWeightGrad(const Op& op, const Names& a);
  std::string EmitTake(const Op& op, const Names& a);
  std::string EmitTakeAlong(const Op& op, const Names& a);
  std::string EmitTakeNd(const Op& op, const Names& a);
  std::string EmitScatter(const Op& op, const Names& a);
  std::string EmitScatterNd(const Op& op, const Names& a);
  std::string EmitReduce(const Op& op, const Names& a);
  std::string EmitArgReduce(const Op& op, const Names& a);
  std::string EmitSort(const Op& op, const Names& a);
  std::string EmitCollective(const Op& op, const Names& a);

  // "%n = <rhs>", and returns "%n".
  std::string Line(std::string_view rhs);
  void Raw(std::string_view line);
  // A name that nothing has yet, for arguments of nested blocks.
  std::string Fresh();
  // stablehlo.<name> of operands of one type with a result of that type.
  std::string Simple(std::string_view name, const Names& a, const Type& type);
  std::string Convert(const std::string& value, const Type& from, DType to);
  std::string Constant(const Type& type, const Attribute& value);
  std::string Compare(std::string_view direction, const std::string& x, const std::string& y,
                      const Type& type);
  std::string Select(const std::string& condition, const std::string& x, const std::string& y,
                     const Type& type);
  std::string Reshape(const std::string& x, const Type& from, const Dims& to);
  std::string Iota(const Type& type, size_t dim);
  // Whether x comes before y: smaller (larger if `larger`), NaN counting as the largest (or, when
  // `nan_first`, as what is before all others).
  std::string Before(const std::string& x, const std::string& y, const Type& type, bool larger,
                     bool nan_first);
  // Indices as i64, negative ones counted from the end if `wrap`.
  std::string Index(const std::string& x, const Type& type, int64_t size, bool wrap);
  // Coordinates [S.., n] of elements whose dimension `dim` is `indices` and whose others are their
  // own.
  std::string Coordinates(const std::string& indices, const Type& type, size_t dim);
  std::string Stack(const Names& indices, const Dims& shape, size_t count);
  std::string ScatterInto(const Op& op, const Names& a, const std::string& coordinates,
                          const Dims& coordinate_dims, size_t indexed);

  Library& library_;
  std::string text_;
  std::string indent_ = "    ";
  int next_ = 0;
};

}  // namespace neuron::ir::hlo
