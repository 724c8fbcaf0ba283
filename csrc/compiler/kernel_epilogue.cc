// The other last step of KernelBuilder: a pointwise kernel as the epilogue of the call whose result
// it reads. Its loops are laid over the result's rows and columns, so that it can be run on any
// part of them.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "compiler/kernel_builder.h"

namespace neuron::compiler {

using loop::Kind;

bool KernelBuilder::IsLoadOf(const Raw& raw, const Place& result) const {
  return raw.inst.kind == Kind::kLoad &&
         slots_[raw.inst.slot] == std::pair(result.operand, result.byte_offset);
}

// No reductions, nothing indirect, and of the result's memory only the result itself, read.
bool KernelBuilder::WalksOnce(const Place& result) const {
  if (reduce_ != nullptr) return false;
  int64_t bytes = ByteSize(result.dtype);
  for (int64_t size : result.dims) bytes *= size;
  bool reads = false;
  for (const Raw& raw : raws_) {
    if (raw.inst.kind != Kind::kLoad && raw.inst.kind != Kind::kStore) continue;
    if (!raw.inst.indirect.empty()) return false;
    if (IsLoadOf(raw, result)) {
      reads = true;
      continue;
    }
    const auto& [operand, offset] = slots_[raw.inst.slot];
    if (operand == result.operand && offset >= result.byte_offset &&
        offset < result.byte_offset + bytes)
      return false;
  }
  return reads;
}

// Orders the dimensions as the result has them in memory. False unless together they are exactly
// its elements.
bool KernelBuilder::OrderAs(const Place& result) {
  DropUnitDims();
  const std::vector<int64_t>* guide = nullptr;
  for (const Raw& raw : raws_) {
    if (!IsLoadOf(raw, result)) continue;
    if (guide != nullptr && *guide != raw.coefficients) return false;
    guide = &raw.coefficients;
  }
  std::vector<int> order(sizes_.size());
  std::iota(order.begin(), order.end(), 0);
  const std::vector<int64_t> steps = *guide;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return steps[a] > steps[b]; });
  int64_t elements = 1;
  for (auto d = order.rbegin(); d != order.rend(); ++d) {
    if (steps[*d] != elements) return false;
    elements *= sizes_[*d];
  }
  PermuteDims(order);
  return elements ==
         std::accumulate(result.dims.begin(), result.dims.end(), int64_t{1}, std::multiplies<>());
}

// The dimension from which on they walk a row of `columns` elements; one that reaches across the
// end of rows is cut in two.
std::optional<size_t> KernelBuilder::SplitAt(int64_t columns) {
  int64_t inner = 1;
  size_t d = sizes_.size();
  while (d > 0 && inner < columns && inner * sizes_[d - 1] <= columns) inner *= sizes_[--d];
  if (inner == columns) return d;
  if (d == 0 || columns % inner != 0 || sizes_[d - 1] % (columns / inner) != 0) return std::nullopt;
  const size_t cut = d - 1;
  const int64_t low = columns / inner, high = sizes_[cut] / low;
  std::vector<int> order(sizes_.size());
  std::iota(order.begin(), order.end(), 0);
  order.insert(order.begin() + static_cast<int64_t>(cut), -1);
  PermuteDims(order);
  sizes_[cut] = high;
  sizes_[cut + 1] = low;
  for (Raw& raw : raws_) {
    if (!raw.coefficients.empty()) raw.coefficients[cut] = raw.coefficients[cut + 1] * low;
  }
  return cut + 1;
}

bool KernelBuilder::SuitsVectors() const {
  if (sizes_.back() < kMinEpilogueColumns) return false;
  return std::all_of(raws_.begin(), raws_.end(), [](const Raw& raw) {
    if (raw.inst.kind == Kind::kStore) return raw.coefficients.back() == 1;
    if (raw.inst.kind == Kind::kLoad)
      return raw.coefficients.back() <= 1 && raw.coefficients.back() >= 0;
    return true;
  });
}

// One operand for each way of walking: a part of the result moves each by an offset of its own.
void KernelBuilder::SeparateSlots() {
  std::vector<std::tuple<int, int64_t, std::vector<int64_t>>> known;
  for (Raw& raw : raws_) {
    if (raw.inst.kind != Kind::kLoad && raw.inst.kind != Kind::kStore) continue;
    const auto& [operand, offset] = slots_[raw.inst.slot];
    const std::tuple key(operand, offset, raw.coefficients);
    const auto it = std::find(known.begin(), known.end(), key);
    raw.inst.slot = static_cast<int>(it - known.begin());
    if (it == known.end()) known.push_back(key);
  }
  slots_.clear();
  for (const auto& [operand, offset, steps] : known) slots_.emplace_back(operand, offset);
}

void KernelBuilder::DescribeEpilogue(const Place& result, BuiltEpilogue& out) const {
  host::Epilogue& epilogue = out.epilogue;
  epilogue.sizes.assign(sizes_.begin(), sizes_.end());
  epilogue.steps.resize(slots_.size());
  int next = static_cast<int>(sizes_.size()) + 2;
  for (size_t i = 0; i < raws_.size(); ++i) {
    const loop::Inst& inst = out.built.kernel.insts[i];
    const int count = loop::NumParams(inst);
    if (inst.kind == Kind::kIndex) {
      epilogue.offsets.push_back({next + count - 1, raws_[i].coefficients});
    } else if (inst.kind == Kind::kLoad || inst.kind == Kind::kStore) {
      auto& steps = epilogue.steps[inst.slot];
      steps = raws_[i].coefficients;
      for (int64_t& step : steps) step *= ByteSize(inst.dtype);
      if (IsLoadOf(raws_[i], result)) {
        epilogue.result = inst.slot;
        // All dimensions but the last one, which is the vector's, have a stride among the params.
        epilogue.result_params.push_back(next + epilogue.row_dims - 1);
      }
    }
    next += count;
  }
}

std::optional<KernelBuilder::BuiltEpilogue> KernelBuilder::FinishEpilogue(const Place& result,
                                                                          int64_t columns) const {
  if (!WalksOnce(result)) return std::nullopt;
  KernelBuilder copy = *this;
  if (!copy.OrderAs(result)) return std::nullopt;
  auto boundary = copy.SplitAt(columns);
  if (!boundary || *boundary == copy.sizes_.size()) return std::nullopt;
  copy.MergeDims(&*boundary);
  if (*boundary == 0) {  // a single row
    std::vector<int> order(copy.sizes_.size());
    std::iota(order.begin(), order.end(), 0);
    order.insert(order.begin(), -1);
    copy.PermuteDims(order);
    ++*boundary;
  }
  if (!copy.SuitsVectors()) return std::nullopt;
  const size_t rank = copy.sizes_.size();
  copy.PadOuterDims();
  copy.SeparateSlots();
  if (copy.slots_.size() > host::kMaxOperands) return std::nullopt;
  BuiltEpilogue out;
  out.epilogue.row_dims = static_cast<int>(*boundary + copy.sizes_.size() - rank);
  out.built.kernel.name = copy.name_;
  out.built.scalars = copy.scalars_;
  for (const auto& [operand, offset] : copy.slots_) {
    out.built.operands.push_back(operand);
    out.built.byte_offsets.push_back(offset);
  }
  copy.Classify(static_cast<int>(copy.sizes_.size()) - 1, out.built);
  copy.DescribeEpilogue(result, out);
  return out;
}

}  // namespace neuron::compiler
