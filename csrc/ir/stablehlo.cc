#include "ir/stablehlo.h"

#include "ir/stablehlo_emit.h"
#include "ir/stablehlo_text.h"

namespace neuron::ir {

using namespace hlo;  // NOLINT: this file is its only entry point

std::string PrintStableHlo(const Graph& graph, const std::vector<std::string>& argument_names) {
  Names arguments, declared, types;
  std::vector<int> aliased_output(graph.parameters().size(), -1);
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const int alias = graph.outputs()[i].aliases_parameter;
    if (alias >= 0) aliased_output[static_cast<size_t>(alias)] = static_cast<int>(i);
    types.push_back(TypeName(graph.outputs()[i].value->type));
  }
  for (const Op* parameter : graph.parameters()) {
    const size_t i = arguments.size();
    arguments.push_back(StrCat("%arg", i));
    std::string text = StrCat(arguments.back(), ": ", TypeName(parameter->type));
    if (aliased_output[i] >= 0)
      text += StrCat(" {tf.aliasing_output = ", aliased_output[i], " : i32}");
    if (i < argument_names.size()) text += StrCat(" loc(", Quote(argument_names[i]), ")");
    declared.push_back(text);
  }
  for (const auto& op : graph.ops()) {
    if (op->code != OpCode::kScalar) continue;
    arguments.push_back(StrCat("%arg", arguments.size()));
    declared.push_back(StrCat(arguments.back(), ": ", TypeName(op->type)));
  }
  Library library;
  Emitter emitter(library);
  const Names results = emitter.EmitGraph(graph, arguments);
  std::string out =
      StrCat("module ", Symbol(graph.name()), " {\n  func.func public @main(", Join(declared),
             ") -> (", Join(types), ") {\n", emitter.text(), "    return");
  if (!results.empty()) out += StrCat(" ", Join(results), " : ", Join(types));
  out += "\n  }\n";
  for (const std::string& function : library.texts()) out += function;
  return out + "}\n";
}

}  // namespace neuron::ir
