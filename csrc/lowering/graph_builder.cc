#include "lowering/graph_builder.h"

#include "lowering/table.h"

namespace neuron::lowering {

ScalarArg GraphBuilder::Number(DType dtype, double value, int64_t integer) {
  ScalarArg out;
  out.dtype = dtype;
  out.known = IsFloat(dtype) ? value : static_cast<double>(integer);
  Builder b(graph_);
  out.value = IsFloat(dtype) ? b.Const(dtype, value) : b.ConstInt(dtype, integer);
  return out;
}

std::vector<Op*> GraphBuilder::Call(const std::string& op,
                                    std::vector<std::pair<std::string, Arg>> args,
                                    const std::vector<ir::Type>& results, DType default_float) {
  const Entry* entry = Table::Get().Find(op);
  if (entry == nullptr) NEURON_THROW(kUnsupported, "aten::", op, " has no lowering");
  if (entry->random)
    NEURON_THROW(kUnsupported, "aten::", op,
                 " draws random numbers, which a compiled graph does not do yet");
  Context context(graph_, op);
  context.SetDefaultFloat(default_float);
  for (auto& [name, arg] : args) context.SetArg(name, std::move(arg));
  for (const ir::Type& type : results) {
    if (IsComplex(type.dtype) && !entry->moves_only)
      NEURON_THROW(kUnsupported, "aten::", op, " of ", Name(type.dtype));
    context.AddResult(type);
  }
  entry->lower(context);
  return context.returned();
}

ir::Graph& GraphBuilder::Finish() {
  graph_.RemoveDeadOps();
  return graph_;
}

}  // namespace neuron::lowering
