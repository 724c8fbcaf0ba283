// What a lowering sees of one call of an ATen op: arguments by their schema names, and the types of
// the results as PyTorch's meta kernel gives them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"

namespace neuron::lowering {

using ir::BroadcastDims;
using ir::Builder;
using ir::Dims;
using ir::Op;
using ir::OpCode;
using ir::WrapDim;

struct TensorArg {
  Op* value = nullptr;          // null: undefined
  bool wrapped_number = false;  // a Python number: it does not decide the result's dtype
  bool is_complex = false;      // given as pairs: see Entry::complex_as_pairs
};

// A number. Its value is known to the lowering only if the table says so (static_args) or if it is
// one of the common values 0, 1, -1, 2, 3, 0.5; otherwise it is a run-time argument.
struct ScalarArg {
  DType dtype = DType::kF64;  // f64, i64 or b8: the kind of number
  Op* value = nullptr;        // rank 0
  std::optional<double> known;
};

using Arg = std::variant<std::monostate, TensorArg, std::vector<TensorArg>, ScalarArg, int64_t,
                         bool, Dims, std::string, DType>;

class Context {
 public:
  Context(ir::Graph& graph, std::string op) : b(graph), op_(std::move(op)) {}

  void SetArg(std::string_view name, Arg arg) { args_.emplace_back(name, std::move(arg)); }
  void AddResult(ir::Type type) { results_.push_back(std::move(type)); }
  void AddUnwantedResult() { results_.push_back(std::nullopt); }
  void SetDefaultFloat(DType dtype) { default_float_ = dtype; }
  // Rank-0 i64 run-time arguments of random ops: the generator's seed, and the first counter
  // reserved.
  void SetRandom(Op* seed, Op* offset) { seed_ = seed, offset_ = offset; }

  Builder b;

  // Arguments. Each throws kInternal if the op has no such argument or it is of another kind.
  bool Has(std::string_view name) const;  // present and not None
  Op* T(std::string_view name) const;
  const TensorArg& Tensor(std::string_view name) const;
  Op* OptionalT(std::string_view name) const;  // null if None
  std::vector<Op*> List(std::string_view name) const;
  std::vector<TensorArg> TensorList(std::string_view name) const;
  int64_t Int(std::string_view name) const;
  Dims Ints(std::string_view name) const;
  Dims IntsOr(std::string_view name, Dims otherwise) const;
  bool Bool(std::string_view name) const;
  std::string String(std::string_view name) const;
  const ScalarArg& Scalar(std::string_view name) const;
  Op* S(std::string_view name, DType dtype);           // the number as a rank-0 value of dtype
  bool Is(std::string_view name, double value) const;  // known to be this value
  double Static(std::string_view name) const;          // of a static argument
  double StaticOr(std::string_view name, double otherwise) const;

  Op* seed() const { return seed_; }
  Op* offset() const { return offset_; }
  DType default_float() const { return default_float_; }

  const ir::Type& Result(size_t i = 0) const;
  size_t num_results() const { return results_.size(); }
  // False: the caller's output_mask leaves result i out.
  bool Wants(size_t i) const { return i < results_.size() && results_[i].has_value(); }
  // The results, in order. Converted to the dtype and broadcast to the shape that Result(i) says.
  // What is not wanted may be null.
  void Return(std::vector<Op*> values);
  const std::vector<Op*>& returned() const { return returned_; }
  const std::string& op() const { return op_; }

 private:
  const Arg& Find(std::string_view name) const;
  std::string op_;
  std::vector<std::pair<std::string, Arg>> args_;
  std::vector<std::optional<ir::Type>> results_;
  std::vector<Op*> returned_;
  Op* seed_ = nullptr;
  Op* offset_ = nullptr;
  DType default_float_ = DType::kF32;
};

}  // namespace neuron::lowering
