// The last step of KernelBuilder: orders, merges and classifies the loops, so that one text (and so
// one machine code) serves as many shapes as possible.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compiler/kernel_builder.h"

namespace neuron::compiler {

using loop::Kind;
using loop::Stride;

namespace {

bool IsAffine(const loop::Inst& inst) {
  return inst.kind == Kind::kLoad || inst.kind == Kind::kStore || inst.kind == Kind::kIndex;
}

// Elements that one thread should at least be given: about 10 us of simple work.
constexpr int64_t kGrainElements = 32768;

// Elements that passes keep from one to the next: what a second-level cache holds in float32.
// Computing again is cheaper than memory beyond it.
constexpr int64_t kMostKept = 1 << 18;

}  // namespace

void KernelBuilder::PermuteDims(const std::vector<int>& order) {
  ir::Dims sizes;
  std::vector<bool> reduced;
  for (int d : order) {
    sizes.push_back(d < 0 ? 1 : sizes_[d]);
    reduced.push_back(d >= 0 && reduced_[d]);
  }
  for (Raw& raw : raws_) {
    if (!IsAffine(raw.inst)) continue;
    std::vector<int64_t> coefficients;
    for (int d : order) coefficients.push_back(d < 0 ? 0 : raw.coefficients[d]);
    raw.coefficients = std::move(coefficients);
  }
  sizes_ = std::move(sizes);
  reduced_ = std::move(reduced);
}

void KernelBuilder::DropUnitDims() {
  std::vector<int> order;
  for (int d = 0; d < static_cast<int>(sizes_.size()); ++d) {
    if (sizes_[d] != 1) order.push_back(d);
  }
  PermuteDims(order);
}

// The first access that walks most dimensions: what memory order should follow.
const KernelBuilder::Raw* KernelBuilder::MainAccess(bool store) const {
  const Raw* best = nullptr;
  int most = -1;
  for (const Raw& raw : raws_) {
    if (raw.inst.kind != (store ? Kind::kStore : Kind::kLoad)) continue;
    int dims = 0;
    for (int64_t c : raw.coefficients) dims += c != 0;
    if (dims > most) {
      most = dims;
      best = &raw;
    }
  }
  return best;
}

// Parallel dimensions first, each kind from large to small steps in memory.
void KernelBuilder::OrderDims() {
  const Raw* store = MainAccess(true);
  const Raw* load = MainAccess(false);
  const auto step = [&](int d) {
    const Raw* guide = reduced_[d] && load != nullptr ? load : store;
    const int64_t c = guide == nullptr ? 0 : std::llabs(guide->coefficients[d]);
    return c;
  };
  std::vector<int> order(sizes_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    if (reduced_[a] != reduced_[b]) return static_cast<bool>(reduced_[b]);
    return step(a) > step(b);
  });
  PermuteDims(order);
}

// Dimension `boundary` (of those left) is not merged with the one before it.
void KernelBuilder::MergeDims(size_t* boundary) {
  for (size_t d = 1; d < sizes_.size();) {
    bool mergeable = reduced_[d - 1] == reduced_[d] && (boundary == nullptr || *boundary != d);
    for (const Raw& raw : raws_) {
      if (!mergeable || !IsAffine(raw.inst)) continue;
      mergeable = raw.coefficients[d - 1] == raw.coefficients[d] * sizes_[d];
    }
    if (!mergeable) {
      ++d;
      continue;
    }
    sizes_[d] *= sizes_[d - 1];
    std::vector<int> order;
    for (size_t k = 0; k < sizes_.size(); ++k) {
      if (k != d - 1) order.push_back(static_cast<int>(k));
    }
    PermuteDims(order);
    if (boundary != nullptr && d < *boundary) --*boundary;
  }
}

int KernelBuilder::ChooseVectorDim() const {
  const int rank = static_cast<int>(sizes_.size());
  int last_parallel = -1;
  for (int d = 0; d < rank; ++d) {
    if (!reduced_[d]) last_parallel = d;
  }
  bool has_reduction = false;
  for (const Raw& raw : raws_) has_reduction |= raw.inst.kind == Kind::kReduce;
  if (!has_reduction)
    return last_parallel;  // pointwise, or a scatter whose serial loops stay scalar
  const Raw* load = MainAccess(false);
  if (load != nullptr) {
    for (int d = rank - 1; d >= 0; --d) {
      if (load->coefficients[d] == 1) return d;
    }
  }
  return rank - 1;
}

// Rounds the number of outer parallel dimensions up, so that few kernels serve all ranks.
void KernelBuilder::PadOuterDims() {
  int outer = -1;  // without the vector dimension, which exists
  for (bool r : reduced_) outer += !r;
  outer = std::max(outer, 0);
  constexpr int kCounts[] = {1, 2, 3, 5, 8, 12};
  const int padded = *std::lower_bound(std::begin(kCounts), std::end(kCounts) - 1, outer);
  std::vector<int> order(std::max(0, padded - outer), -1);
  for (int d = 0; d < static_cast<int>(sizes_.size()); ++d) order.push_back(d);
  PermuteDims(order);
}

BuiltKernel KernelBuilder::Finish() {
  BuiltKernel out;
  out.kernel.name = name_;
  out.scalars = scalars_;
  for (const auto& [operand, offset] : slots_) {
    out.operands.push_back(operand);
    out.byte_offsets.push_back(offset);
  }
  DropUnitDims();
  OrderDims();
  MergeDims();
  if (std::all_of(reduced_.begin(), reduced_.end(), [](bool r) { return r; })) {
    // Nothing parallel is left: one row. A pointwise kernel or a scatter walks it as a vector of
    // one element.
    bool has_reduction = false;
    for (const Raw& raw : raws_) has_reduction |= raw.inst.kind == Kind::kReduce;
    if (!has_reduction || reduced_.empty()) {
      std::vector<int> order;
      for (int d = 0; d < static_cast<int>(sizes_.size()); ++d) order.push_back(d);
      order.insert(order.begin(), -1);
      PermuteDims(order);
      if (sizes_.size() == 1) {
        for (Raw& raw : raws_) {
          if (raw.inst.kind == Kind::kLoad || raw.inst.kind == Kind::kStore)
            raw.coefficients[0] = 1;
        }
      }
    }
  }
  PadOuterDims();
  Classify(ChooseVectorDim(), out);
  return out;
}

// The loops as they are now, with `v` the vector dimension: text, parameters, work items.
void KernelBuilder::Classify(int v, BuiltKernel& out) {
  const int rank = static_cast<int>(sizes_.size());
  out.kernel.vector_dim = v;
  out.kernel.reduced = reduced_;
  out.kernel.operands = static_cast<int>(slots_.size());
  out.kernel.scalars = static_cast<int>(scalars_.size());

  int64_t outer = 1, inner = 1;
  for (int d = 0; d < rank; ++d) {
    if (!reduced_[d] && d != v) outer *= sizes_[d];
    if (reduced_[d] && d != v) inner *= sizes_[d];
  }
  int64_t chunk = sizes_[v];
  int64_t chunks = 1;
  if (!reduced_[v]) {
    const bool has_serial = std::find(reduced_.begin(), reduced_.end(), true) != reduced_.end();
    const int64_t most = has_serial ? 64 : kGrainElements / 2;
    if (chunk > most) chunk = most;
    chunks = chunk == 0 ? 0 : (sizes_[v] + chunk - 1) / chunk;
  }
  out.items = outer * chunks;
  out.params.assign(sizes_.begin(), sizes_.end());
  out.params.push_back(chunk);
  out.params.push_back(chunks);

  int64_t work = 1;
  for (Raw& raw : raws_) {
    loop::Inst inst = raw.inst;
    for (int d = 0; IsAffine(inst) && d < rank; ++d) {
      const int64_t c = raw.coefficients[d];
      Stride stride = Stride::kParam;
      if (d == v || reduced_[d]) {
        if (c == 0) stride = Stride::kZero;
        if (c == 1 && d == v && inst.kind != Kind::kIndex) stride = Stride::kOne;
      }
      inst.strides.push_back(stride);
      if (stride == Stride::kParam) out.params.push_back(c);
    }
    if (inst.kind == Kind::kIndex) out.params.push_back(raw.offset);
    for (const auto& [stride, limit] : raw.indirect) {
      out.params.push_back(stride);
      out.params.push_back(limit);
    }
    out.can_fail |= !inst.indirect.empty();
    const bool division = inst.op == ir::OpCode::kDivide || inst.op == ir::OpCode::kRemainder;
    out.can_fail |= inst.kind == Kind::kCompute && division && IsIntegral(inst.dtype);
    work += 1;
    out.kernel.insts.push_back(std::move(inst));
  }
  const int64_t row = inner * (reduced_[v] ? chunk : loop::kMaxLanes);
  if (row <= kMostKept) out.kept_bytes = 8 * loop::KeptElements(row) * loop::MarkKept(out.kernel);
  const int64_t per_item = std::max<int64_t>(1, inner * chunk);
  out.grain = std::max<int64_t>(1, kGrainElements * 6 / (per_item * std::min<int64_t>(work, 24)));
  out.estimated_ns = 200 + out.items * (20 + per_item * work / 32);
}

}  // namespace neuron::compiler
