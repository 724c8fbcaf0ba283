#include "compiler/planned_step.h"

#include <map>
#include <utility>
#include <vector>

#include "support/error.h"

namespace neuron::compiler {

// Which operands the kernel reads and writes, and whether each is read only where it is written.
Access AccessOf(const BuiltKernel& built) {
  Access access;
  std::map<int, std::set<std::vector<int64_t>>> loads, stores;
  size_t next = built.kernel.reduced.size() + 2;
  bool reduces = false;
  size_t num_stores = 0;
  for (const loop::Inst& inst : built.kernel.insts) {
    const int n = loop::NumParams(inst);
    const bool is_store = inst.kind == loop::Kind::kStore;
    if (inst.kind == loop::Kind::kLoad || is_store) {
      const int operand = built.operands[inst.slot];
      std::vector<int64_t> shape{built.byte_offsets[inst.slot],
                                 static_cast<int64_t>(inst.indirect.size())};
      for (loop::Stride s : inst.strides) shape.push_back(static_cast<int64_t>(s));
      shape.insert(shape.end(), built.params.begin() + next, built.params.begin() + next + n);
      (is_store ? stores : loads)[operand].insert(shape);
      (is_store ? access.writes : access.reads).insert(operand);
    }
    next += n;
    reduces |= inst.kind == loop::Kind::kReduce;
    num_stores += is_store;
  }
  // Elementwise with respect to an aliasing output: one way of reading, equal to the way of
  // writing, and no later pass that would read what an earlier one wrote.
  if (reduces && num_stores > 1) loads.clear();
  for (const auto& [operand, ways] : loads) {
    for (const auto& [written, write_ways] : stores) {
      if (ways.size() == 1 && write_ways.size() == 1 && *ways.begin() == *write_ways.begin() &&
          (*ways.begin())[1] == 0) {
        access.elementwise.insert(operand);
      }
    }
  }
  return access;
}

host::KernelStep MakeKernelStep(BuiltKernel built) {
  NEURON_CHECK(built.operands.size() <= host::kMaxOperands, "kernel with ", built.operands.size(),
               " operands");
  loop::Verify(built.kernel);
  host::KernelStep step;
  step.name = built.kernel.name;
  step.fused = loop::Operations(built.kernel);
  for (size_t k = 0; k < built.operands.size(); ++k)
    step.operands.push_back({built.operands[k], built.byte_offsets[k]});
  step.params = std::move(built.params);
  step.scalars = std::move(built.scalars);
  step.items = built.items;
  step.grain = built.grain;
  step.kept_bytes = built.kept_bytes;
  step.can_fail = built.can_fail;
  return step;
}

}  // namespace neuron::compiler
