// Builds one loop kernel from tensor operations: index maps are composed down to the loads, so
// views and broadcasts cost nothing and intermediates stay in registers.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop_ir.h"
#include "compiler/place.h"
#include "ir/graph.h"
#include "platform/host/executable.h"

namespace neuron::compiler {

// A kernel with the concrete values of its run-time parameters.
struct BuiltKernel {
  loop::Kernel kernel;
  std::vector<int> operands;          // launch operand of each kernel operand
  std::vector<int64_t> byte_offsets;  // added to its address
  std::vector<int> scalars;           // launch scalar of each kernel scalar
  std::vector<int64_t> params;
  int64_t items = 0;  // 0: nothing to do
  int64_t grain = 1;
  int64_t kept_bytes = 0;  // memory that each thread needs for what passes keep
  int64_t estimated_ns = 0;
  bool can_fail = false;
};

// An epilogue's rows are at least this long: shorter ones cost more than a pass over memory.
inline constexpr int64_t kMinEpilogueColumns = 16;

class KernelBuilder {
 public:
  using FindPlace = std::function<std::optional<Place>(const ir::Op*)>;

  // `find` tells where a value lies in memory, if it does. `share` gives the place of a value that
  // this kernel should also write when it computes it, for other kernels; null: no such values.
  // Values of which `apart` is true are computed by a kernel of their own.
  KernelBuilder(FindPlace find, std::string name, FindPlace share = nullptr,
                std::function<bool(const ir::Op*)> apart = nullptr)
      : find_(std::move(find)),
        share_(std::move(share)),
        apart_(std::move(apart)),
        name_(std::move(name)) {}

  // The values that the kernel writes besides its roots.
  const std::vector<std::pair<const ir::Op*, Place>>& written() const { return written_; }

  // Computes `root` into `destination`. The first call fixes the loop nest. Returns false if that
  // is not possible in one kernel: needed() then tells a value that must be in memory first, or is
  // null when the root does not fit this kernel's loops. After false only a first call's builder is
  // unusable.
  bool AddRoot(const ir::Op* root, const Place& destination);
  const ir::Op* needed() const { return needed_; }

  // A scatter: updates written through the indices along the affine remainder of `destination`.
  // Each later element wins, so the loops over `serial_dims` of the updates run in order.
  bool AddScatter(const ir::Op* scatter, const Place& destination);

  BuiltKernel Finish();

  // Instead of Finish: this kernel as an epilogue of the call that writes `result`, a contiguous
  // matrix of `columns` columns, and the kernel's operands named as in a launch. nullopt if it does
  // more than walk once over exactly the elements of the result.
  struct BuiltEpilogue {
    BuiltKernel built;
    host::Epilogue epilogue;  // without its kernel
  };
  std::optional<BuiltEpilogue> FinishEpilogue(const Place& result, int64_t columns) const;

 private:
  // Index of a value's dimension as an affine function of the domain's indices.
  struct Affine {
    std::vector<int64_t> coefficients;
    int64_t offset = 0;
    friend auto operator<=>(const Affine&, const Affine&) = default;
  };
  using Map = std::vector<Affine>;

  struct Raw {
    loop::Inst inst;
    std::vector<int64_t> coefficients;  // of the address, per domain dimension
    int64_t offset = 0;                 // elements; loads and stores move it to the base
    std::vector<std::pair<int64_t, int64_t>> indirect;  // stride, limit
  };

  bool FixDomain(const ir::Op* root);
  const ir::Op* FindReduce(const ir::Op* op, std::set<const ir::Op*>& visited);
  std::optional<Map> RootMap(const ir::Dims& dims) const;
  Map IdentityMap() const;

  int Emit(const ir::Op* op, const Map& map);
  int EmitNew(const ir::Op* op, const Map& map);
  int EmitShared(const ir::Op* op, const Map& map, const Place& place);
  int EmitLoad(const Place& place, const Map& map,
               const std::vector<std::pair<int, int>>& indirect_dims, bool wrap);
  int EmitReduce(const ir::Op* op, const Map& map);
  int EmitTake(const ir::Op* op, const Map& map);
  int EmitReshape(const ir::Op* op, const Map& map);
  int EmitIndex(const Affine& affine);
  int EmitRng(const ir::Op* op, const Map& map);
  int EmitConvert(int inst, DType to);
  int Push(Raw raw);
  int Need(const ir::Op* op);
  int NeedForRoom(const ir::Op* op);
  bool Full() const;
  int Slot(int operand, int64_t byte_offset);
  int ScalarSlot(int scalar);
  Affine Constant(int64_t value) const { return {std::vector<int64_t>(sizes_.size(), 0), value}; }
  void AddStore(int value, const Place& destination, const Map& map);

  // Finish
  void DropUnitDims();
  void OrderDims();
  void MergeDims(size_t* boundary = nullptr);
  void Classify(int v, BuiltKernel& out);
  void PadOuterDims();
  int ChooseVectorDim() const;
  void PermuteDims(const std::vector<int>& order);
  const Raw* MainAccess(bool store) const;
  // FinishEpilogue
  bool IsLoadOf(const Raw& raw, const Place& result) const;
  bool WalksOnce(const Place& result) const;
  bool OrderAs(const Place& result);
  std::optional<size_t> SplitAt(int64_t columns);
  bool SuitsVectors() const;
  void SeparateSlots();
  void DescribeEpilogue(const Place& result, BuiltEpilogue& out) const;

  FindPlace find_, share_;
  std::function<bool(const ir::Op*)> apart_;
  std::vector<std::pair<const ir::Op*, Place>> written_;
  const ir::Op* root_ = nullptr;  // being added
  std::string name_;
  bool fixed_ = false;
  ir::Dims sizes_;  // of the domain
  std::vector<bool> reduced_;
  const ir::Op* reduce_ = nullptr;  // the reduction that fixed the domain
  std::vector<Raw> raws_;
  std::map<std::pair<const ir::Op*, Map>, int> memo_;
  std::vector<std::pair<int, int64_t>> slots_;  // launch operand, byte offset
  std::vector<int> scalars_;
  const ir::Op* needed_ = nullptr;
};

}  // namespace neuron::compiler
