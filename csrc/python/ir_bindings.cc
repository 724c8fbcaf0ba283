#include "python/ir_bindings.h"

#include <pybind11/stl.h>

#include "ir/graph.h"
#include "ir/stablehlo.h"

namespace py = pybind11;

namespace neuron {
namespace {

// Name, number of operands (-1: any), attributes and meaning of each operation.
py::list OpCodes() {
  py::list out;
  for (int code = 0; code < ir::kNumOpCodes; ++code) {
    const ir::OpInfo& info = ir::Info(static_cast<ir::OpCode>(code));
    out.append(py::make_tuple(info.name, info.operands, info.attributes, info.doc));
  }
  return out;
}

}  // namespace

void BindIr(py::module_& m) {
  py::module_ sub = m.def_submodule("ir", "Tensor-level graphs as text.");
  sub.def(
      "roundtrip", [](std::string_view text) { return ir::Print(ir::Parse(text)); },
      py::arg("text"),
      "The text in its canonical form; ValueError with line and column if it is none.");
  sub.def(
      "verify", [](std::string_view text) { ir::Verify(ir::Parse(text)); }, py::arg("text"),
      "Raises RuntimeError with the operation and the rule it breaks.");
  sub.def(
      "stablehlo",
      [](std::string_view text, const std::vector<std::string>& argument_names) {
        const ir::Graph graph = ir::Parse(text);
        ir::Verify(graph);
        return ir::PrintStableHlo(graph, argument_names);
      },
      py::arg("text"), py::arg("argument_names") = std::vector<std::string>(),
      py::call_guard<py::gil_scoped_release>(),
      "The graph as a StableHLO module; NotImplementedError naming an operation without such a "
      "form.");
  sub.def("opcodes", &OpCodes,
          "(name, operands, attributes, meaning) of each; operands -1: any number.");
}

}  // namespace neuron
