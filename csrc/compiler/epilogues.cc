#include "compiler/epilogues.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "compiler/sharing.h"
#include "compiler/work.h"

namespace neuron::compiler {

using host::OperandRef;
using host::Step;
using ir::Op;
using ir::OpCode;

namespace {

using Consumers = std::unordered_map<const Op*, std::vector<const Op*>>;

// Follows what is computed from a product until something else than elementwise work needs it.
class Cone {
 public:
  Cone(const Op* product, const Consumers& consumers,
       const std::unordered_map<const Op*, int>& order)
      : product_(product), consumers_(consumers), order_(order) {}

  const Op* Last() {
    const Op* best = product_;
    Add(product_);
    while (!next_.empty()) {
      const Op* op = next_.begin()->second;
      next_.erase(next_.begin());
      if (!Follows(op)) return best;
      for (const Op* operand : op->operands) open_ -= members_.contains(operand);
      const bool all_goes_through = open_ == 0;
      Add(op);
      if (all_goes_through && ByteSize(op->type.dtype) <= ByteSize(product_->type.dtype)) best = op;
    }
    return best;
  }

 private:
  bool Follows(const Op* op) const {
    return (IsElementwise(op->code) || op->code == OpCode::kReshape) &&
           op->type.NumElements() == product_->type.NumElements();
  }

  void Add(const Op* op) {
    members_.insert(op);
    const auto it = consumers_.find(op);
    if (it == consumers_.end()) return;
    for (const Op* consumer : it->second) {
      ++open_;
      // An output is a consumer without a value.
      if (consumer != nullptr) next_.emplace(order_.at(consumer), consumer);
    }
  }

  const Op* product_;
  const Consumers& consumers_;
  const std::unordered_map<const Op*, int>& order_;
  std::set<const Op*> members_;
  std::set<std::pair<int, const Op*>> next_;
  int open_ = 0;  // uses of members by what is not yet one
};

bool SameMemory(const OperandRef& ref, const OperandRef& result, int64_t bytes) {
  return ref.index == result.index && ref.byte_offset >= result.byte_offset &&
         ref.byte_offset < result.byte_offset + bytes;
}

bool Touches(const Step& step, const OperandRef& result, int64_t bytes) {
  const auto any = [&](const std::vector<OperandRef>& refs) {
    return std::any_of(refs.begin(), refs.end(),
                       [&](const OperandRef& ref) { return SameMemory(ref, result, bytes); });
  };
  return any(step.kind == Step::kKernel ? step.kernel.operands : step.library.operands) ||
         (step.library.epilogue && any(step.library.epilogue->kernel.operands));
}

// The result of a matrix product that can have an epilogue: contiguous, of all batch items.
std::optional<Place> ResultOf(const Step& step) {
  if (step.kind != Step::kLibrary || step.library.name != "gemm" || step.library.epilogue)
    return std::nullopt;
  const host::TensorDesc& tensor = step.library.tensors.back();
  const OperandRef& ref = step.library.operands.back();
  Place place{ref.index, ref.byte_offset, tensor.dtype, tensor.dims, tensor.strides};
  const ir::Dims dense = ir::ContiguousStrides(tensor.dims);
  for (size_t d = 0; d < dense.size(); ++d) {
    if (tensor.dims[d] > 1 && tensor.strides[d] != dense[d]) return std::nullopt;
  }
  return place;
}

// The product at `product` and the kernel at `kernel` become one step in the kernel's place.
void Fuse(std::vector<PlannedStep>& steps, size_t product, size_t kernel,
          KernelBuilder::BuiltEpilogue fused, bool keep) {
  PlannedStep merged = std::move(steps[product]);
  PlannedStep& old = steps[kernel];
  std::set<int> elementwise;
  for (int operand : old.access.elementwise) {
    if (!merged.access.reads.contains(operand)) elementwise.insert(operand);
  }
  merged.access.elementwise = std::move(elementwise);
  merged.access.reads.insert(old.access.reads.begin(), old.access.reads.end());
  merged.access.writes.insert(old.access.writes.begin(), old.access.writes.end());
  merged.estimated_ns += old.estimated_ns;
  merged.kernel = fused.built.kernel;
  AddEpilogueWork(merged.step.work, fused.built, fused.epilogue.result, keep);
  fused.epilogue.kernel = MakeKernelStep(std::move(fused.built));
  // The kernel gets the part of the result that is finished.
  fused.epilogue.kernel.operands[static_cast<size_t>(fused.epilogue.result)] = {-1, 0};
  merged.step.library.epilogue = std::move(fused.epilogue);
  if (!keep) merged.step.library.operands.back() = {-1, 0};
  steps[kernel] = std::move(merged);
  steps.erase(steps.begin() + static_cast<int64_t>(product));
}

}  // namespace

std::unordered_set<const Op*> FindEpilogues(const ir::Graph& graph) {
  std::unordered_set<const Op*> found;
  std::vector<const Op*> products;
  std::unordered_map<const Op*, int> order;
  Consumers consumers;
  for (const auto& op : graph.ops()) {
    const bool wide = !op->type.dims.empty() && op->type.dims.back() >= kMinEpilogueColumns;
    if (op->code == OpCode::kDotGeneral && wide) products.push_back(op.get());
    order.emplace(op.get(), static_cast<int>(order.size()));
  }
  if (products.empty()) return found;
  for (const auto& op : graph.ops()) {
    for (const Op* operand : op->operands) consumers[operand].push_back(op.get());
  }
  for (const ir::Output& output : graph.outputs()) consumers[output.value].push_back(nullptr);
  for (const Op* product : products) {
    const Op* last = Cone(product, consumers, order).Last();
    while (last->code == OpCode::kReshape) last = last->operands[0];
    if (last != product) found.insert(last);
  }
  return found;
}

void FuseEpilogues(std::vector<PlannedStep>& steps, int scratch) {
  for (size_t i = steps.size(); i-- > 0;) {
    const auto result = ResultOf(steps[i].step);
    if (!result) continue;
    const OperandRef ref{result->operand, result->byte_offset};
    int64_t bytes = ByteSize(result->dtype);
    for (int64_t size : result->dims) bytes *= size;
    const auto touches = [&](const PlannedStep& s) { return Touches(s.step, ref, bytes); };
    const auto first =
        std::find_if(steps.begin() + static_cast<int64_t>(i) + 1, steps.end(), touches);
    if (first == steps.end() || !first->builder) continue;
    auto fused = first->builder->FinishEpilogue(*result, result->dims.back());
    if (!fused) continue;
    const bool keep = result->operand != scratch || std::any_of(first + 1, steps.end(), touches);
    Fuse(steps, i, static_cast<size_t>(first - steps.begin()), std::move(*fused), keep);
  }
}

}  // namespace neuron::compiler
