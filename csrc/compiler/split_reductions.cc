#include "compiler/split_reductions.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace neuron::compiler {

using ir::Dims;
using ir::Op;
using ir::OpCode;

namespace {

// With as many results, rows are shared as they are.
constexpr int64_t kEnoughRows = 8;
// Of one part: enough to pay for handing it to a thread.
constexpr int64_t kPartElements = 16384;
constexpr int64_t kMostParts = 64;

// The dimension that is cut, into `parts` times `size` elements; what is left is less than a part.
struct Cut {
  size_t dim;
  int64_t parts, size;
};

int64_t LargestDivisor(int64_t n, int64_t most) {
  for (int64_t d = most; d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

std::optional<Cut> FindCut(const Op& op) {
  if (op.code != OpCode::kReduce) return std::nullopt;
  const std::string& kind = op.String("kind");
  if (kind == "argmax" || kind == "argmin") return std::nullopt;
  const Dims& dims = op.operands[0]->type.dims;
  const int64_t rows = op.type.NumElements();
  if (rows == 0 || rows >= kEnoughRows) return std::nullopt;
  const int64_t row = op.operands[0]->type.NumElements() / rows;
  const int64_t wanted = std::min(row / kPartElements, kMostParts / rows);
  if (wanted < 2) return std::nullopt;
  size_t longest = static_cast<size_t>(op.Ints("dims")[0]);
  for (const int64_t d : op.Ints("dims")) {
    if (dims[static_cast<size_t>(d)] > dims[longest]) longest = static_cast<size_t>(d);
  }
  const int64_t size = dims[longest];
  const int64_t most = std::min(wanted, size);
  const int64_t even = LargestDivisor(size, most);
  const int64_t parts = 2 * even >= most ? even : most;
  return Cut{longest, parts, size / parts};
}

class Splitter {
 public:
  explicit Splitter(const ir::Graph& from) : from_(from), to_(from.name()) {}

  ir::Graph Run() {
    for (const auto& op : from_.ops()) moved_[op.get()] = Move(*op);
    for (const ir::Output& output : from_.outputs())
      to_.AddOutput(moved_.at(output.value), output.strides, output.aliases_parameter);
    return std::move(to_);
  }

 private:
  Op* Move(const Op& op) {
    if (op.code == OpCode::kParameter) return to_.AddParameter(op.type, op.Ints("strides"));
    if (op.code == OpCode::kScalar) return to_.AddScalar(op.type.dtype);
    if (const auto cut = FindCut(op)) return Split(op, *cut);
    std::vector<Op*> operands;
    for (const Op* operand : op.operands) operands.push_back(moved_.at(operand));
    return to_.Add(op.code, op.type, std::move(operands), op.attributes);
  }

  Op* Split(const Op& op, const Cut& cut) {
    Op* whole = moved_.at(op.operands[0]);
    const int64_t even = cut.parts * cut.size, size = whole->type.dims[cut.dim];
    Op* result = ReduceParts(op, Slice(whole, cut.dim, 0, even), cut);
    if (even == size) return result;
    Op* rest = Reduce(op, Slice(whole, cut.dim, even, size), op.Ints("dims"), op.type.dims);
    return to_.Add(Combination(op.String("kind")), op.type, {result, rest});
  }

  // [.., parts * size, ..] as [.., parts, size, ..]: over all but the parts, then over these.
  Op* ReduceParts(const Op& op, Op* x, const Cut& cut) {
    Dims dims = x->type.dims;
    dims[cut.dim] = cut.size;
    dims.insert(dims.begin() + static_cast<int64_t>(cut.dim), cut.parts);
    const auto dim = static_cast<int64_t>(cut.dim);
    Dims reduced;
    for (const int64_t d : op.Ints("dims")) reduced.push_back(d < dim ? d : d + 1);
    Dims kept;
    int64_t at = 0;  // where the parts are among the dimensions that are kept
    for (int64_t d = 0; d < static_cast<int64_t>(dims.size()); ++d) {
      if (std::find(reduced.begin(), reduced.end(), d) != reduced.end()) continue;
      if (d == dim) at = static_cast<int64_t>(kept.size());
      kept.push_back(dims[static_cast<size_t>(d)]);
    }
    Op* split = to_.Add(OpCode::kReshape, {x->type.dtype, dims}, {x});
    return Reduce(op, Reduce(op, split, reduced, kept), {at}, op.type.dims);
  }

  Op* Reduce(const Op& op, Op* x, const Dims& dims, const Dims& result) {
    return to_.Add(OpCode::kReduce, {op.type.dtype, result}, {x},
                   {{"dims", dims}, {"kind", op.String("kind")}});
  }

  Op* Slice(Op* x, size_t dim, int64_t start, int64_t limit) {
    if (start == 0 && limit == x->type.dims[dim]) return x;
    Dims from(x->type.dims.size(), 0), to = x->type.dims, ones(from.size(), 1), dims = to;
    from[dim] = start;
    to[dim] = limit;
    dims[dim] = limit - start;
    return to_.Add(OpCode::kSlice, {x->type.dtype, dims}, {x},
                   {{"start", from}, {"limit", to}, {"stride", ones}});
  }

  static OpCode Combination(const std::string& kind) {
    if (kind == "add") return OpCode::kAdd;
    if (kind == "multiply") return OpCode::kMultiply;
    if (kind == "maximum") return OpCode::kMaximum;
    if (kind == "minimum") return OpCode::kMinimum;
    return kind == "and" ? OpCode::kAnd : OpCode::kOr;
  }

  const ir::Graph& from_;
  ir::Graph to_;
  std::unordered_map<const Op*, Op*> moved_;
};

}  // namespace

bool HasSplittableReduction(const ir::Graph& graph) {
  return std::any_of(graph.ops().begin(), graph.ops().end(),
                     [](const auto& op) { return FindCut(*op).has_value(); });
}

ir::Graph SplitReductions(const ir::Graph& graph) { return Splitter(graph).Run(); }

}  // namespace neuron::compiler
