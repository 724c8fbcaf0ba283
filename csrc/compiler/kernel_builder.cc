#include "compiler/kernel_builder.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/sharing.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

using ir::Op;
using ir::OpCode;
using loop::Kind;

namespace {

constexpr int kStoreRoom = 8;

bool SeesThrough(OpCode code) {
  return IsElementwise(code) || code == OpCode::kBroadcastInDim || code == OpCode::kReshape ||
         code == OpCode::kTranspose || code == OpCode::kSlice;
}

std::vector<bool> ReducedFlags(const Op* reduce) {
  std::vector<bool> flags(reduce->operands[0]->type.dims.size(), false);
  for (int64_t d : reduce->Ints("dims")) flags[d] = true;
  return flags;
}

}  // namespace

int KernelBuilder::Need(const Op* op) {
  needed_ = op;
  return -1;
}

int KernelBuilder::Push(Raw raw) {
  raws_.push_back(std::move(raw));
  return static_cast<int>(raws_.size()) - 1;
}

int KernelBuilder::Slot(int operand, int64_t byte_offset) {
  const std::pair<int, int64_t> key{operand, byte_offset};
  const auto it = std::find(slots_.begin(), slots_.end(), key);
  if (it != slots_.end()) return static_cast<int>(it - slots_.begin());
  slots_.push_back(key);
  return static_cast<int>(slots_.size()) - 1;
}

// Loads leave room for a few stores.
bool KernelBuilder::Full() const {
  return static_cast<int>(slots_.size()) >= host::kMaxOperands - kStoreRoom;
}

int KernelBuilder::ScalarSlot(int scalar) {
  const auto it = std::find(scalars_.begin(), scalars_.end(), scalar);
  if (it != scalars_.end()) return static_cast<int>(it - scalars_.begin());
  scalars_.push_back(scalar);
  return static_cast<int>(scalars_.size()) - 1;
}

KernelBuilder::Map KernelBuilder::IdentityMap() const {
  Map map(sizes_.size(), Constant(0));
  for (size_t d = 0; d < sizes_.size(); ++d) map[d].coefficients[d] = 1;
  return map;
}

// The first reduction that is met walking from the root to what lies in memory. Each value is
// visited once: a graph is no tree.
const Op* KernelBuilder::FindReduce(const Op* op, std::set<const Op*>& visited) {
  if (!visited.insert(op).second || find_(op)) return nullptr;
  if (op->code == OpCode::kReduce) return op;
  if (!SeesThrough(op->code)) return nullptr;
  for (const Op* operand : op->operands) {
    if (const Op* found = FindReduce(operand, visited)) return found;
  }
  return nullptr;
}

// After more loads than a kernel has operands: what to compute first. An operand that this kernel
// has read much for, or the operation itself.
int KernelBuilder::NeedForRoom(const Op* op) {
  for (const Op* operand : op->operands) {
    if (IsElementwise(operand->code) && !find_(operand)) return Need(operand);
  }
  return op == root_ ? -1 : Need(op);
}

bool KernelBuilder::FixDomain(const Op* root) {
  fixed_ = true;
  std::set<const Op*> visited;
  reduce_ = FindReduce(root, visited);
  if (reduce_ == nullptr) {
    sizes_ = root->type.dims;
    reduced_.assign(sizes_.size(), false);
    return true;
  }
  sizes_ = reduce_->operands[0]->type.dims;
  reduced_ = ReducedFlags(reduce_);
  if (RootMap(root->type.dims)) return true;
  needed_ = reduce_;
  return false;
}

// How a root of shape `dims` lies in the domain: per element, per row, or per row with dimensions
// of size 1 kept.
std::optional<KernelBuilder::Map> KernelBuilder::RootMap(const ir::Dims& dims) const {
  if (dims == sizes_) return IdentityMap();
  if (reduce_ == nullptr) return std::nullopt;
  const Map identity = IdentityMap();
  ir::Dims kept, ones;
  Map kept_map, ones_map;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    ones.push_back(reduced_[d] ? 1 : sizes_[d]);
    ones_map.push_back(reduced_[d] ? Constant(0) : identity[d]);
    if (reduced_[d]) continue;
    kept.push_back(sizes_[d]);
    kept_map.push_back(identity[d]);
  }
  if (dims == kept) return kept_map;
  if (dims == ones) return ones_map;
  return std::nullopt;
}

bool KernelBuilder::AddRoot(const Op* root, const Place& place) {
  needed_ = nullptr;
  // A reshape of the result is a view of its destination where that is evenly spaced.
  Place destination = place;
  while (root->code == OpCode::kReshape && !find_(root)) {
    const Op* operand = root->operands[0];
    const auto strides = ReshapeStrides(destination.dims, destination.strides, operand->type.dims);
    if (!strides) break;
    destination.dims = operand->type.dims;
    destination.strides = *strides;
    root = operand;
  }
  if (!fixed_ && !FixDomain(root)) return false;
  const auto map = RootMap(root->type.dims);
  if (!map) return false;
  const size_t raws = raws_.size();
  const size_t written = written_.size();
  const size_t slots = slots_.size();
  root_ = root;
  const int value = Emit(root, *map);
  if (value < 0 || static_cast<int>(slots_.size()) >= host::kMaxOperands) {
    raws_.resize(raws);
    written_.resize(written);
    slots_.resize(slots);
    std::erase_if(memo_, [&](const auto& entry) { return entry.second >= static_cast<int>(raws); });
    return false;
  }
  AddStore(value, destination, *map);
  return true;
}

void KernelBuilder::AddStore(int value, const Place& destination, const Map& map) {
  Raw raw;
  raw.inst.kind = Kind::kStore;
  raw.inst.dtype = destination.dtype;
  raw.inst.operands = {value};
  raw.coefficients.assign(sizes_.size(), 0);
  for (size_t i = 0; i < map.size(); ++i) {
    for (size_t d = 0; d < sizes_.size(); ++d)
      raw.coefficients[d] += map[i].coefficients[d] * destination.strides[i];
  }
  raw.inst.slot = Slot(destination.operand, destination.byte_offset);
  Push(std::move(raw));
}

int KernelBuilder::Emit(const Op* op, const Map& map) {
  const auto key = std::pair{op, map};
  const auto it = memo_.find(key);
  if (it != memo_.end()) return it->second;
  if (apart_ != nullptr && op != root_ && apart_(op) && !find_(op)) return Need(op);
  int id = -1;
  const auto place = share_ != nullptr && op != root_ && !find_(op) ? share_(op) : std::nullopt;
  id = place ? EmitShared(op, map, *place) : EmitNew(op, map);
  if (id >= 0) memo_.emplace(key, id);
  return id;
}

// Where this kernel computes every element of the value exactly once, it writes it on the way;
// elsewhere the value must be in memory first.
int KernelBuilder::EmitShared(const Op* op, const Map& map, const Place& place) {
  const auto all = RootMap(op->type.dims);
  if (!all || *all != map) return Need(op);
  const int id = EmitNew(op, map);
  if (id < 0) return -1;
  AddStore(id, place, map);
  written_.emplace_back(op, place);
  return id;
}

int KernelBuilder::EmitNew(const Op* op, const Map& map) {
  if (const auto place = find_(op)) return EmitLoad(*place, map, {}, false);
  if (IsElementwise(op->code)) {
    Raw raw;
    raw.inst.op = op->code;
    raw.inst.dtype = op->type.dtype;
    for (const Op* operand : op->operands) {
      const int id = Emit(operand, map);
      if (id < 0) return needed_ == nullptr ? NeedForRoom(op) : -1;
      raw.inst.operands.push_back(id);
    }
    if (op->code == OpCode::kCompare) raw.inst.detail = op->String("direction");
    return Push(std::move(raw));
  }
  switch (op->code) {
    case OpCode::kConstant: {
      Raw raw;
      raw.inst.kind = Kind::kConst;
      raw.inst.dtype = op->type.dtype;
      const ir::Attribute& value = op->attributes.find("value")->second;
      if (const auto* integer = std::get_if<int64_t>(&value)) {
        raw.inst.ivalue = *integer;
        raw.inst.value = static_cast<double>(*integer);
      } else {
        raw.inst.value = std::get<double>(value);
      }
      return Push(std::move(raw));
    }
    case OpCode::kShapeConstant:
      return EmitIndex(Constant(op->Int("value")));
    case OpCode::kScalar: {
      Raw raw;
      raw.inst.kind = Kind::kScalar;
      raw.inst.dtype = op->type.dtype;
      raw.inst.slot = ScalarSlot(static_cast<int>(op->Int("index")));
      return Push(std::move(raw));
    }
    case OpCode::kIota:
      return EmitConvert(EmitIndex(map[op->Int("dim")]), op->type.dtype);
    case OpCode::kBroadcastInDim: {
      const Op* operand = op->operands[0];
      Map inner;
      for (size_t i = 0; i < operand->type.dims.size(); ++i) {
        const auto to = static_cast<size_t>(op->Ints("dims")[i]);
        inner.push_back(operand->type.dims[i] == op->type.dims[to] ? map[to] : Constant(0));
      }
      return Emit(operand, inner);
    }
    case OpCode::kTranspose: {
      Map inner(map.size());
      for (size_t i = 0; i < map.size(); ++i) inner[op->Ints("permutation")[i]] = map[i];
      return Emit(op->operands[0], inner);
    }
    case OpCode::kSlice: {
      Map inner = map;
      for (size_t i = 0; i < map.size(); ++i) {
        const int64_t step = op->Ints("stride")[i];
        for (int64_t& c : inner[i].coefficients) c *= step;
        inner[i].offset = inner[i].offset * step + op->Ints("start")[i];
      }
      return Emit(op->operands[0], inner);
    }
    case OpCode::kReverse: {
      Map inner = map;
      for (int64_t d : op->Ints("dims")) {
        for (int64_t& c : inner[d].coefficients) c = -c;
        inner[d].offset = op->type.dims[d] - 1 - inner[d].offset;
      }
      return Emit(op->operands[0], inner);
    }
    case OpCode::kReshape:
      return EmitReshape(op, map);
    case OpCode::kTake:
    case OpCode::kTakeAlong:
    case OpCode::kTakeNd:
      return EmitTake(op, map);
    case OpCode::kReduce:
      return EmitReduce(op, map);
    case OpCode::kRngBits:
      return EmitRng(op, map);
    default:
      return Need(op);
  }
}

int KernelBuilder::EmitConvert(int inst, DType to) {
  if (inst < 0 || raws_[inst].inst.dtype == to) return inst;
  Raw raw;
  raw.inst.op = OpCode::kConvert;
  raw.inst.dtype = to;
  raw.inst.operands = {inst};
  return Push(std::move(raw));
}

int KernelBuilder::EmitIndex(const Affine& affine) {
  Raw raw;
  raw.inst.kind = Kind::kIndex;
  raw.inst.dtype = DType::kI64;
  raw.coefficients = affine.coefficients;
  raw.offset = affine.offset;
  return Push(std::move(raw));
}

int KernelBuilder::EmitRng(const Op* op, const Map& map) {
  Affine linear = Constant(0);
  const ir::Dims strides = ir::ContiguousStrides(op->type.dims);
  for (size_t i = 0; i < map.size(); ++i) {
    for (size_t d = 0; d < sizes_.size(); ++d)
      linear.coefficients[d] += map[i].coefficients[d] * strides[i];
    linear.offset += map[i].offset * strides[i];
  }
  Raw raw;
  raw.inst.op = OpCode::kRngBits;
  raw.inst.dtype = op->type.dtype;
  for (const Op* operand : op->operands) {
    const int id = Emit(operand, {});
    if (id < 0) return -1;
    raw.inst.operands.push_back(id);
  }
  raw.inst.operands.push_back(EmitIndex(linear));
  raw.inst.detail = std::to_string(op->Int("word"));
  return Push(std::move(raw));
}

// indirect_dims: dimensions of `place` that an i64 instruction indexes, as (dimension,
// instruction).
int KernelBuilder::EmitLoad(const Place& place, const Map& map,
                            const std::vector<std::pair<int, int>>& indirect_dims, bool wrap) {
  if (Full()) return -1;
  Raw raw;
  raw.inst.kind = Kind::kLoad;
  raw.inst.dtype = place.dtype;
  raw.inst.wrap = wrap;
  raw.coefficients.assign(sizes_.size(), 0);
  int64_t offset = 0;
  for (size_t i = 0; i < place.dims.size(); ++i) {
    const auto it =
        std::find_if(indirect_dims.begin(), indirect_dims.end(),
                     [&](const auto& entry) { return entry.first == static_cast<int>(i); });
    if (it != indirect_dims.end()) {
      raw.inst.indirect.push_back(it->second);
      raw.indirect.emplace_back(place.strides[i], place.dims[i]);
      continue;
    }
    for (size_t d = 0; d < sizes_.size(); ++d)
      raw.coefficients[d] += map[i].coefficients[d] * place.strides[i];
    offset += map[i].offset * place.strides[i];
  }
  raw.inst.slot = Slot(place.operand, place.byte_offset + offset * ByteSize(place.dtype));
  return Push(std::move(raw));
}

int KernelBuilder::EmitTake(const Op* op, const Map& map) {
  const Op* table = op->operands[0];
  const auto place = find_(table);
  if (!place) return Need(table);
  const size_t index_rank = op->operands[1]->type.dims.size();
  Map inner(table->type.dims.size(), Constant(0));
  std::vector<std::pair<int, int>> indirect;
  bool wrap = true;
  if (op->code == OpCode::kTakeNd) {
    const size_t n = op->operands.size() - 1;
    for (size_t k = 0; k < n; ++k) {
      const int index = Emit(op->operands[k + 1], Map(map.begin(), map.begin() + index_rank));
      if (index < 0) return -1;
      indirect.emplace_back(static_cast<int>(k), EmitConvert(index, DType::kI64));
    }
    for (size_t i = n; i < inner.size(); ++i) inner[i] = map[i - n + index_rank];
  } else {
    const auto dim = static_cast<size_t>(op->Int("dim"));
    const bool along = op->code == OpCode::kTakeAlong;
    const Map index_map = along ? map : Map(map.begin() + dim, map.begin() + dim + index_rank);
    const int index = Emit(op->operands[1], index_map);
    if (index < 0) return -1;
    indirect.emplace_back(static_cast<int>(dim), EmitConvert(index, DType::kI64));
    wrap = !along && op->Has("wrap") && op->Int("wrap") != 0;
    for (size_t i = 0; i < inner.size(); ++i) {
      if (i != dim) inner[i] = map[along || i < dim ? i : i - 1 + index_rank];
    }
  }
  return EmitLoad(*place, inner, indirect, wrap);
}

int KernelBuilder::EmitReduce(const Op* op, const Map& map) {
  const Op* operand = op->operands[0];
  const Map identity = IdentityMap();
  Map rows;
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (!reduced_[d]) rows.push_back(identity[d]);
  }
  if (reduce_ == nullptr || operand->type.dims != sizes_ || ReducedFlags(op) != reduced_)
    return Need(op);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (map[i] != rows[i] && op->type.dims[i] != 1) return Need(op);
  }
  Raw raw;
  raw.inst.kind = Kind::kReduce;
  raw.inst.dtype = op->type.dtype;
  raw.inst.detail = op->String("kind");
  const int value = Emit(operand, identity);
  if (value < 0) return -1;
  raw.inst.operands = {value};
  if (raw.inst.detail == "argmax" || raw.inst.detail == "argmin") {
    Affine linear = Constant(0);
    int64_t stride = 1;
    for (int d = static_cast<int>(sizes_.size()) - 1; d >= 0; --d) {
      if (!reduced_[d]) continue;
      linear.coefficients[d] = stride;
      stride *= sizes_[d];
    }
    raw.inst.operands.push_back(EmitIndex(linear));
  }
  return Push(std::move(raw));
}

// The linear index of the result, cut into the operand's dimensions term by term.
int KernelBuilder::EmitReshape(const Op* op, const Map& map) {
  const Op* operand = op->operands[0];
  // What must be in memory when the indices do not come apart: the operand, or if it is there and
  // cannot be viewed in this shape, the reshaped value itself.
  const Op* missing = find_(operand) ? op : operand;
  const ir::Dims& to = operand->type.dims;
  const ir::Dims result_strides = ir::ContiguousStrides(op->type.dims);
  const ir::Dims strides = ir::ContiguousStrides(to);
  Affine linear = Constant(0);
  for (size_t i = 0; i < map.size(); ++i) {
    if (op->type.dims[i] == 1) continue;
    for (size_t d = 0; d < sizes_.size(); ++d)
      linear.coefficients[d] += map[i].coefficients[d] * result_strides[i];
    linear.offset += map[i].offset * result_strides[i];
  }
  Map inner(to.size(), Constant(0));
  ir::Dims last(to.size(), 0);  // the largest index that each operand dimension reaches
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 1) continue;
    inner[i].offset = linear.offset / strides[i];
    linear.offset -= inner[i].offset * strides[i];
    last[i] += inner[i].offset;
    for (size_t d = 0; d < sizes_.size(); ++d) {
      int64_t& c = linear.coefficients[d];
      if (c < strides[i] || sizes_[d] <= 1) continue;
      if (c % strides[i] != 0) return Need(missing);
      inner[i].coefficients[d] = c / strides[i];
      last[i] += inner[i].coefficients[d] * (sizes_[d] - 1);
      c = 0;
    }
    if (last[i] >= to[i]) return Need(missing);
  }
  for (size_t d = 0; d < sizes_.size(); ++d) {
    if (linear.coefficients[d] < 0 && sizes_[d] > 1) return Need(missing);
  }
  return Emit(operand, inner);
}

bool KernelBuilder::AddScatter(const Op* op, const Place& destination) {
  needed_ = nullptr;
  fixed_ = true;
  const bool nd = op->code == OpCode::kScatterNd;
  const Op* updates = op->operands.back();
  const size_t index_rank = op->operands[1]->type.dims.size();
  sizes_ = updates->type.dims;
  reduced_.assign(sizes_.size(), false);
  // Elements that may hit one place run in order: a serial loop.
  const size_t n = nd ? op->operands.size() - 2 : 1;
  const auto dim = nd ? size_t{0} : static_cast<size_t>(op->Int("dim"));
  for (size_t d = 0; d < sizes_.size(); ++d) reduced_[d] = nd ? d < index_rank : d == dim;
  const Map identity = IdentityMap();
  const int value = Emit(updates, identity);
  if (value < 0) return false;
  Raw store;
  store.inst.kind = Kind::kStore;
  store.inst.dtype = destination.dtype;
  store.inst.wrap = nd;
  store.coefficients.assign(sizes_.size(), 0);
  for (size_t k = 0; k < n; ++k) {
    const Map map = nd ? Map(identity.begin(), identity.begin() + index_rank) : identity;
    const int index = Emit(op->operands[k + 1], map);
    if (index < 0) return false;
    store.inst.indirect.push_back(EmitConvert(index, DType::kI64));
    store.indirect.emplace_back(destination.strides[dim + k], destination.dims[dim + k]);
  }
  for (size_t i = 0; i < destination.dims.size(); ++i) {
    if (i >= dim && i < dim + n) continue;
    store.coefficients[nd ? i - n + index_rank : i] += destination.strides[i];
  }
  store.inst.slot = Slot(destination.operand, destination.byte_offset);
  const std::string& mode = op->String("mode");
  int result = value;
  if (mode != "set") {
    Raw old = store;
    old.inst.kind = Kind::kLoad;
    Raw combine;
    combine.inst.op = mode == "add"        ? OpCode::kAdd
                      : mode == "multiply" ? OpCode::kMultiply
                      : mode == "maximum"  ? OpCode::kMaximum
                                           : OpCode::kMinimum;
    combine.inst.dtype = destination.dtype;
    // The code generator computes bf16 and f16 in f32 and rounds each sum.
    combine.inst.operands = {Push(std::move(old)), value};
    result = Push(std::move(combine));
  }
  store.inst.operands = {result};
  Push(std::move(store));
  reduce_ = op;  // marks the domain as having serial dimensions
  return true;
}

}  // namespace neuron::compiler
