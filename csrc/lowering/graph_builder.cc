#include "lowering/graph_builder.h"

#include "lowering/table.h"

namespace neuron::lowering {

namespace {

// Graphs move complex numbers but do not compute with them.
void RequireReal(const Entry& entry, const ir::Type& type) {
  if (IsComplex(type.dtype) && !entry.moves_only)
    NEURON_THROW(kUnsupported, "aten::", entry.name, " of ", Name(type.dtype));
}

}  // namespace

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
                                    const std::vector<std::optional<ir::Type>>& results,
                                    DType default_float) {
  const Entry* entry = Table::Get().Find(op);
  if (entry == nullptr) NEURON_THROW(kUnsupported, "aten::", op, " has no lowering");
  Context context(graph_, op);
  if (entry->random) {
    if (seed_ == nullptr) {
      seed_ = graph_.AddScalar(DType::kI64);
      first_counter_ = graph_.AddScalar(DType::kI64);
    }
    Builder b(graph_);
    Op* counter = first_counter_;
    if (random_count_ > 0) {
      counter = b.Binary(OpCode::kAdd, counter, b.ConstInt(DType::kI64, random_count_));
    }
    context.SetRandom(seed_, counter);
    random_count_ += results[0]->NumElements();
  }
  context.SetDefaultFloat(default_float);
  for (auto& [name, arg] : args) {
    const auto* tensor = std::get_if<TensorArg>(&arg);
    if (tensor != nullptr && tensor->value != nullptr) RequireReal(*entry, tensor->value->type);
    context.SetArg(name, std::move(arg));
  }
  for (const std::optional<ir::Type>& type : results) {
    if (!type) {
      context.AddUnwantedResult();
      continue;
    }
    RequireReal(*entry, *type);
    context.AddResult(*type);
  }
  entry->lower(context);
  return context.returned();
}

ir::Graph& GraphBuilder::Finish() {
  graph_.RemoveDeadOps();
  return graph_;
}

}  // namespace neuron::lowering
