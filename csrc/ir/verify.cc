#include "ir/graph.h"

namespace neuron::ir {

void Verify(const Graph& graph) {
  for (const auto& op : graph.ops()) {
    const OpInfo& info = Info(op->code);
    NEURON_CHECK(info.operands < 0 || info.operands == static_cast<int>(op->operands.size()), "%", op->id, " = ",
                 info.name, " has ", op->operands.size(), " operands, expected ", info.operands);
    for (const Op* operand : op->operands) {
      NEURON_CHECK(operand->id < op->id, "%", op->id, " = ", info.name, " uses %", operand->id, " before its definition");
    }
  }
}

}  // namespace neuron::ir
