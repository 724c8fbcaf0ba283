#include "compiler/planner.h"

#include <algorithm>
#include <map>
#include <set>

#include "compiler/arena.h"
#include "compiler/epilogues.h"
#include "compiler/kernel_builder.h"
#include "compiler/kernel_library.h"
#include "compiler/library_calls.h"
#include "compiler/place.h"
#include "compiler/planned_step.h"
#include "compiler/sharing.h"
#include "compiler/work.h"
#include "platform/host/engines.h"

namespace neuron::compiler {

using host::KernelStep;
using host::LibraryStep;
using host::Step;
using ir::Op;
using ir::OpCode;

namespace {

constexpr size_t kSmallGraph = 64;
constexpr int64_t kMinPermuted = 4096;  // elements; below, a kernel that is cached anyway will do

class Planner {
 public:
  // Outputs in `detached` are computed in scratch and copied at the end.
  Planner(const ir::Graph& graph, std::set<int> detached)
      : graph_(graph), detached_(std::move(detached)) {
    // A graph of one op is one kernel where it can be: nothing to share.
    epilogues_ = FindEpilogues(graph);
    if (graph.ops().size() > kSmallGraph) shared_ = FindShared(graph, epilogues_);
    scratch_operand_ = static_cast<int>(graph.parameters().size() + graph.outputs().size());
    for (size_t i = 0; i < graph.parameters().size(); ++i) {
      const Op* op = graph.parameters()[i];
      places_[op] = {static_cast<int>(i), 0, op->type.dtype, op->type.dims, op->Ints("strides")};
    }
  }

  void Run() {
    const auto& outputs = graph_.outputs();
    std::vector<std::pair<Place, Place>> copies;
    for (int i = 0; i < static_cast<int>(outputs.size()); ++i) {
      if (done_.contains(i) || outputs[i].value->type.NumElements() == 0) continue;
      const Place destination = OutputPlace(i);
      if (detached_.contains(i)) {
        Materialize(outputs[i].value);
        copies.emplace_back(*Find(outputs[i].value), destination);
      } else {
        ComputeInto(outputs[i].value, destination, i);
      }
    }
    for (const auto& [from, to] : copies) Copy(from, to);
    FuseEpilogues(steps_, scratch_operand_);
  }

  // Binds code to the steps of a run that is not repeated.
  std::shared_ptr<const host::HostExecutable> Finish() {
    auto executable = std::make_shared<host::HostExecutable>();
    executable->operands = scratch_operand_;
    executable->scalars = graph_.num_scalars();
    for (PlannedStep& planned : steps_) {
      Step& step = executable->steps.emplace_back(std::move(planned.step));
      executable->estimated_ns += planned.estimated_ns;
      if (!planned.kernel) continue;
      KernelStep& kernel = step.kind == Step::kKernel ? step.kernel : step.library.epilogue->kernel;
      kernel.code = KernelLibrary::Get().Find(loop::Print(*planned.kernel), kernel.name);
    }
    executable->scratch = arena_.Pack(executable->steps, scratch_operand_);
    return executable;
  }

  // Outputs that share memory with a parameter that some step would read in the wrong order.
  std::set<int> UnsafeAliases() const {
    std::set<int> unsafe;
    for (int i = 0; i < static_cast<int>(graph_.outputs().size()); ++i) {
      const int parameter = graph_.outputs()[i].aliases_parameter;
      if (parameter < 0 || detached_.contains(i)) continue;
      const int operand = OutputOperand(i);
      int first_write = -1;
      for (int s = 0; s < static_cast<int>(steps_.size()) && first_write < 0; ++s) {
        if (steps_[s].access.writes.contains(operand)) first_write = s;
      }
      for (int s = std::max(first_write, 0); s < static_cast<int>(steps_.size()); ++s) {
        const auto& a = steps_[s].access;
        const bool reads = a.reads.contains(parameter);
        const bool same_place = a.writes.contains(operand) && a.elementwise.contains(parameter);
        if (reads && !same_place) unsafe.insert(i);
      }
    }
    return unsafe;
  }

 private:
  int OutputOperand(int i) const { return static_cast<int>(graph_.parameters().size()) + i; }

  Place OutputPlace(int i) const {
    const ir::Output& output = graph_.outputs()[i];
    return {OutputOperand(i), 0, output.value->type.dtype, output.value->type.dims, output.strides};
  }

  // The memory of a value: its own, or a view of its operand's.
  std::optional<Place> Find(const Op* op) const {
    const auto it = places_.find(op);
    if (it != places_.end()) return it->second;
    if (op->operands.empty()) return std::nullopt;
    switch (op->code) {
      case OpCode::kTranspose:
      case OpCode::kBroadcastInDim:
      case OpCode::kSlice:
      case OpCode::kReshape:
        if (const auto inner = Find(op->operands[0])) return ApplyView(*op, *inner);
        return std::nullopt;
      default:
        return std::nullopt;
    }
  }

  Place NewTemporary(const Op* op) {
    const int64_t bytes = op->type.NumElements() * ByteSize(op->type.dtype);
    return {scratch_operand_, arena_.Add(bytes), op->type.dtype, op->type.dims,
            ir::ContiguousStrides(op->type.dims)};
  }

  // The place that a shared value will have; the same at every attempt.
  std::optional<Place> SharedPlace(const Op* op) {
    if (!shared_.contains(op)) return std::nullopt;
    auto it = promised_.find(op);
    if (it == promised_.end()) it = promised_.emplace(op, NewTemporary(op)).first;
    return it->second;
  }

  void Materialize(const Op* op) {
    if (Find(op)) return;
    const auto promised = SharedPlace(op);
    const Place place = promised ? *promised : NewTemporary(op);
    ComputeInto(op, place, -1);
    places_[op] = place;
  }

  void ComputeInto(const Op* op, const Place& destination, int output) {
    switch (op->code) {
      case OpCode::kConcatenate:
        ComputeConcatenate(op, destination);
        break;
      case OpCode::kPad:
        ComputePad(op, destination);
        break;
      case OpCode::kScatter:
      case OpCode::kScatterNd:
        ComputeScatter(op, destination, output);
        break;
      default:
        if (IsLibraryOp(op->code)) {
          ComputeLibrary(op, destination);
        } else {
          ComputeKernel(op, destination, output);
        }
    }
    // Later readers find it there (not through an output with repeated elements).
    if (!places_.contains(op)) places_[op] = destination;
  }

  void ComputeKernel(const Op* op, const Place& destination, int output) {
    if (const auto place = Find(op); place && Permute(*place, destination)) return;
    for (;;) {
      KernelBuilder builder([this](const Op* value) { return Find(value); }, KernelName(),
                            [this](const Op* value) { return SharedPlace(value); },
                            [this](const Op* value) { return epilogues_.contains(value); });
      if (!builder.AddRoot(op, destination)) {
        const Op* needed = builder.needed();
        NEURON_CHECK(needed != nullptr && !Find(needed), "no kernel for ", ir::Info(op->code).name);
        if (needed != op) {
          Materialize(needed);
          continue;
        }
        // A reshape whose destination is not evenly spaced in the operand's shape: through dense
        // memory.
        const Place dense = NewTemporary(op);
        NEURON_CHECK(destination.strides != dense.strides, "no kernel for ",
                     ir::Info(op->code).name);
        ComputeKernel(op, dense, -1);
        Copy(dense, destination);
        return;
      }
      if (output >= 0) {
        // Further outputs that fit the same loops share the reading of their inputs. Only kernels
        // after this one may read them from memory: this one has them in registers.
        std::vector<std::pair<const Op*, Place>> stored;
        for (int i = output + 1; i < static_cast<int>(graph_.outputs().size()); ++i) {
          const Op* other = graph_.outputs()[i].value;
          if (done_.contains(i) || detached_.contains(i) || Find(other)) continue;
          if (!builder.AddRoot(other, OutputPlace(i))) continue;
          done_.insert(i);
          stored.emplace_back(other, OutputPlace(i));
        }
        for (const auto& [value, place] : stored) places_[value] = place;
      }
      for (const auto& [value, place] : builder.written()) places_[value] = place;
      Append(std::move(builder), true);
      return;
    }
  }

  // Copies that reorder dimensions have an engine. False, and nothing done, if this is none.
  bool Permute(const Place& from, const Place& to) {
    if (from.dtype != to.dtype || from.strides == to.strides) return false;
    int64_t elements = 1;
    for (const int64_t size : to.dims) elements *= size;
    if (elements < kMinPermuted) return false;
    const host::TensorDesc source{from.dtype, from.dims, from.strides};
    const host::TensorDesc result{to.dtype, to.dims, to.strides};
    if (!host::CanPermute(source, result)) return false;
    host::LibraryStep step;
    step.name = "permute";
    step.fn = host::FindLibraryFunction("permute");
    step.operands = {{from.operand, from.byte_offset}, {to.operand, to.byte_offset}};
    step.tensors = {source, result};
    AppendLibrary(std::move(step), 1, {{from.operand}, {to.operand}, {}}, 500 + elements / 2);
    return true;
  }

  void Copy(const Place& from, const Place& to) {
    if (Permute(from, to)) return;
    ir::Graph copy("copy");
    Op* value = copy.AddParameter({from.dtype, from.dims}, from.strides);
    KernelBuilder builder(
        [&](const Op* op) { return op == value ? std::optional(from) : std::nullopt; }, "copy");
    NEURON_CHECK(builder.AddRoot(value, to), "copy");
    Append(std::move(builder), true);
  }

  static Place Subview(const Place& place, size_t dim, int64_t start, int64_t size,
                       int64_t step = 1) {
    Place out = place;
    out.byte_offset += start * place.strides[dim] * ByteSize(place.dtype);
    out.dims[dim] = size;
    out.strides[dim] *= step;
    return out;
  }

  void ComputeConcatenate(const Op* op, const Place& destination) {
    const auto dim = static_cast<size_t>(op->Int("dim"));
    int64_t at = 0;
    for (const Op* operand : op->operands) {
      const int64_t size = operand->type.dims[dim];
      if (operand->type.NumElements() > 0) {
        const Place part = Subview(destination, dim, at, size);
        if (const auto place = Find(operand)) {
          Copy(*place, part);
        } else {
          ComputeInto(operand, part, -1);
        }
      }
      at += size;
    }
  }

  void ComputePad(const Op* op, const Place& destination) {
    const Op* inner = op->operands[0];
    // The padding value everywhere first, then the operand over its place.
    Op broadcast;
    broadcast.code = OpCode::kBroadcastInDim;
    broadcast.type = op->type;
    broadcast.operands = {op->operands[1]};
    broadcast.attributes.emplace("dims", ir::Dims{});
    ComputeKernel(&broadcast, destination, -1);
    Place part = destination;
    ir::Dims start(op->type.dims.size()), limit(op->type.dims.size());
    bool cropped = false;
    for (size_t d = 0; d < op->type.dims.size(); ++d) {
      const int64_t low = op->Ints("low")[d];
      const int64_t step = op->Ints("interior")[d] + 1;
      const int64_t size = inner->type.dims[d];
      // Operand index i lands at low + i * step; keep those inside [0, result size).
      start[d] = low >= 0 ? 0 : std::min(size, (-low + step - 1) / step);
      const int64_t room = op->type.dims[d] - low;
      limit[d] = std::max(start[d], std::min(size, room <= 0 ? 0 : (room + step - 1) / step));
      cropped |= start[d] != 0 || limit[d] != size;
      part = Subview(part, d, low + start[d] * step, limit[d] - start[d], step);
      if (limit[d] == start[d]) return;
    }
    if (!cropped) {
      if (const auto place = Find(inner)) {
        Copy(*place, part);
      } else {
        ComputeInto(inner, part, -1);
      }
      return;
    }
    Materialize(inner);
    Place source = *Find(inner);
    for (size_t d = 0; d < start.size(); ++d)
      source = Subview(source, d, start[d], limit[d] - start[d]);
    Copy(source, part);
  }

  void ComputeScatter(const Op* op, const Place& destination, int output) {
    const Op* base = op->operands[0];
    const bool in_place = output >= 0 && graph_.outputs()[output].aliases_parameter >= 0 &&
                          base == graph_.parameters()[graph_.outputs()[output].aliases_parameter];
    if (!in_place) {
      if (const auto place = Find(base)) {
        Copy(*place, destination);
      } else {
        ComputeInto(base, destination, -1);
        places_.erase(base);  // its memory is about to change
      }
    }
    if (op->operands.back()->type.NumElements() == 0) return;
    for (;;) {
      KernelBuilder builder([this](const Op* value) { return Find(value); }, KernelName());
      if (builder.AddScatter(op, destination)) {
        Append(std::move(builder), false);
        return;
      }
      NEURON_CHECK(builder.needed() != nullptr && !Find(builder.needed()), "no kernel for ",
                   ir::Info(op->code).name);
      Materialize(builder.needed());
    }
  }

  void ComputeLibrary(const Op* op, const Place& destination) {
    std::vector<Place> places;
    for (const Op* operand : op->operands) {
      if (operand->code == OpCode::kScalar) continue;
      Materialize(operand);
      places.push_back(*Find(operand));
    }
    Access access;
    for (const Place& place : places) access.reads.insert(place.operand);
    const std::vector<const Op*> results = ComputedTogether(graph_, *op);
    for (const Op* result : results) {
      places.push_back(result == op ? destination : PlaceResult(result));
      access.writes.insert(places.back().operand);
    }
    AppendLibrary(MakeLibraryStep(*op, places, results), results.size(), std::move(access),
                  EstimateLibraryNanoseconds(*op));
  }

  // Where a further result of a library call goes: to the output that is that, or to a temporary.
  Place PlaceResult(const Op* value) {
    for (int i = 0; i < static_cast<int>(graph_.outputs().size()); ++i) {
      if (graph_.outputs()[i].value != value || done_.contains(i) || detached_.contains(i))
        continue;
      done_.insert(i);
      return places_[value] = OutputPlace(i);
    }
    return places_[value] = NewTemporary(value);
  }

  std::string KernelName() const {
    std::string name = graph_.name();
    for (char& c : name) {
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    return name.empty() ? "kernel" : name;
  }

  void Append(KernelBuilder builder, bool pointwise) {
    PlannedStep planned;
    if (pointwise) planned.builder = builder;
    BuiltKernel built = builder.Finish();
    if (built.items == 0) return;
    planned.access = AccessOf(built);
    planned.estimated_ns = built.estimated_ns;
    planned.kernel = built.kernel;
    planned.step.kind = Step::kKernel;
    planned.step.work = KernelWork(built);
    planned.step.kernel = MakeKernelStep(std::move(built));
    steps_.push_back(std::move(planned));
  }

  void AppendLibrary(host::LibraryStep step, size_t results, Access access, int64_t estimated_ns) {
    PlannedStep planned;
    planned.step.kind = Step::kLibrary;
    planned.step.work = LibraryWork(step, results);
    planned.step.library = std::move(step);
    planned.access = std::move(access);
    planned.estimated_ns = estimated_ns;
    steps_.push_back(std::move(planned));
  }

  const ir::Graph& graph_;
  const std::set<int> detached_;
  std::unordered_set<const Op*> epilogues_, shared_;
  std::map<const Op*, Place> promised_;
  int scratch_operand_ = 0;
  Arena arena_;
  std::map<const Op*, Place> places_;
  std::set<int> done_;  // outputs already computed together with an earlier one
  std::vector<PlannedStep> steps_;
};

}  // namespace

std::shared_ptr<const host::HostExecutable> Plan(const ir::Graph& graph) {
  std::set<int> detached;
  for (;;) {
    Planner planner(graph, detached);
    planner.Run();
    const std::set<int> unsafe = planner.UnsafeAliases();
    if (unsafe.empty()) return planner.Finish();
    detached.insert(unsafe.begin(), unsafe.end());
  }
}

}  // namespace neuron::compiler
