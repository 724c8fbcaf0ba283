#include "python/compiler_bindings.h"

#include <pybind11/stl.h>

#include "aten/library_table.h"
#include "compiler/host_compiler.h"
#include "compiler/loop_ir.h"
#include "compiler/simplify.h"
#include "compiler/split_reductions.h"
#include "compiler/stages.h"
#include "ir/graph.h"
#include "lowering/table.h"
#include "platform/host/executable.h"

namespace py = pybind11;

namespace neuron {
namespace {

std::shared_ptr<const host::HostExecutable> CompileText(const std::string& text) {
  const ir::Graph graph = ir::Parse(text);
  return std::static_pointer_cast<const host::HostExecutable>(
      compiler::HostCompiler()->Compile(graph, {.dynamic_sizes = true}));
}

// Runs a graph on memory of this process: addresses of parameters, then outputs; scalars as 64-bit
// words.
void RunText(const std::string& text, std::vector<uint64_t> addresses,
             const std::vector<uint64_t>& scalars) {
  const auto executable = CompileText(text);
  if (static_cast<int>(addresses.size()) != executable->num_operands() ||
      static_cast<int>(scalars.size()) != executable->num_scalars()) {
    NEURON_THROW(kInvalidArgument, "the graph has ", executable->num_operands(), " operands and ",
                 executable->num_scalars(), " scalars, got ", addresses.size(), " and ",
                 scalars.size());
  }
  std::vector<char> scratch(static_cast<size_t>(executable->scratch_bytes()) + 64);
  addresses.push_back((reinterpret_cast<uint64_t>(scratch.data()) + 63) / 64 * 64);
  const py::gil_scoped_release release;
  executable->Run(addresses.data(), scalars.data());
}

void Eval(const std::string& op, const std::vector<uint64_t>& inputs, uint64_t output, int64_t n) {
  ir::Graph graph("eval");
  std::vector<ir::Op*> operands;
  for (size_t i = 0; i < inputs.size(); ++i)
    operands.push_back(graph.AddParameter({DType::kF32, {n}}, {1}));
  for (int code = 0; code < ir::kNumOpCodes; ++code) {
    if (ir::Info(static_cast<ir::OpCode>(code)).name != op) continue;
    graph.AddOutput(graph.Add(static_cast<ir::OpCode>(code), {DType::kF32, {n}}, operands), {1});
    std::vector<uint64_t> addresses = inputs;
    addresses.push_back(output);
    return RunText(ir::Print(graph), addresses, {});
  }
  NEURON_THROW(kInvalidArgument, "no operation is called '", op, "'");
}

// Name and text of each kernel of a graph's plan, and the name of each library call.
std::vector<std::string> DescribeSteps(const std::string& text) {
  std::vector<std::string> out;
  for (const host::Step& step : CompileText(text)->steps) {
    out.push_back(step.kind == host::Step::kKernel ? "kernel " + step.kernel.name
                                                   : "library " + step.library.name);
  }
  return out;
}

}  // namespace

void BindCompiler(py::module_& m) {
  py::module_ sub = m.def_submodule("compiler", "The host compiler.");
  sub.def("fingerprint", [] { return compiler::HostCompiler()->Fingerprint(); });
  sub.def("run", &RunText, py::arg("graph"), py::arg("addresses"),
          py::arg("scalars") = std::vector<uint64_t>());
  sub.def("steps", &DescribeSteps, py::arg("graph"));
  sub.def(
      "plan", [](const std::string& text) { return CompileText(text)->Describe(); },
      py::arg("graph"));
  sub.def("eval_unary_f32",
          [](const std::string& op, uint64_t x, uint64_t y, int64_t n) { Eval(op, {x}, y, n); });
  sub.def("eval_binary_f32", [](const std::string& op, uint64_t a, uint64_t b, uint64_t y,
                                int64_t n) { Eval(op, {a, b}, y, n); });
  sub.def("simplify", [](const std::string& text) {
    const ir::Graph graph = ir::Parse(text);
    ir::Verify(graph);
    const ir::Graph simple = compiler::Simplify(graph);
    ir::Verify(simple);
    return ir::Print(simple);
  });
  sub.def("split_reductions", [](const std::string& text) {
    const ir::Graph graph = ir::Parse(text);
    ir::Verify(graph);
    const ir::Graph split = compiler::SplitReductions(graph);
    ir::Verify(split);
    return ir::Print(split);
  });
  sub.def("write_stage",
          [](const std::string& graph, const std::string& file, const std::string& text) {
            compiler::Stages(graph).Write(file, text);
          });
  sub.def("roundtrip_loop", [](const std::string& text) { return loop::Print(loop::Parse(text)); });
  sub.def("lowered_ops", [] {
    std::vector<std::string> names;
    for (const auto& [name, entry] : lowering::Table::Get().entries()) names.push_back(name);
    return names;
  });
  sub.def("library_ops", [] {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const aten::LibraryOp& op : aten::LibraryOps()) rows.emplace_back(op.name, op.family);
    return rows;
  });
}

}  // namespace neuron
