#include "python/graph_bindings.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "aten/compiled_graph.h"
#include "lowering/graph_builder.h"
#include "lowering/table.h"
#include "neff/cache.h"
#include "platform/compiler.h"
#include "platform/driver.h"
#include "support/error.h"

namespace py = pybind11;

namespace neuron {
namespace {

using lowering::Arg;
using lowering::Op;
using lowering::TensorArg;

// A value of a graph under construction, as Python holds it.
struct Value {
  Op* op = nullptr;
};

ir::Type ToType(const std::string& dtype, const std::vector<int64_t>& dims) {
  return {ParseDType(dtype), dims};
}

// kind: what the schema says; value: None, Value, a number, a list, or a dtype's name.
Arg ToArg(lowering::GraphBuilder& builder, const std::string& kind, const py::handle& value) {
  if (value.is_none()) return std::monostate();
  if (kind == "tensor") return TensorArg{value.cast<Value>().op, false, false};
  if (kind == "tensors") {
    std::vector<TensorArg> list;
    for (const py::handle& item : value) {
      list.push_back(item.is_none() ? TensorArg() : TensorArg{item.cast<Value>().op, false, false});
    }
    return list;
  }
  if (kind == "number" || kind == "wrapped") {
    lowering::ScalarArg number;
    if (py::isinstance<py::bool_>(value)) {
      number = builder.Number(DType::kBool, 0, value.cast<bool>() ? 1 : 0);
    } else if (py::isinstance<py::int_>(value)) {
      number = builder.Number(DType::kI64, 0, value.cast<int64_t>());
    } else {
      number = builder.Number(DType::kF64, value.cast<double>(), 0);
    }
    if (kind == "number") return number;
    return TensorArg{number.value, true, false};  // a number where the schema has a tensor
  }
  if (kind == "int") return value.cast<int64_t>();
  if (kind == "ints") return value.cast<ir::Dims>();
  if (kind == "bool") return value.cast<bool>();
  if (kind == "str") return value.cast<std::string>();
  if (kind == "dtype") return ParseDType(value.cast<std::string>());
  NEURON_THROW(kInternal, "argument kind '", kind, "'");
}

using ResultType = std::pair<std::string, std::vector<int64_t>>;

std::vector<std::optional<Value>> Call(lowering::GraphBuilder& builder, const std::string& op,
                                       const py::list& args,
                                       const std::vector<std::optional<ResultType>>& results,
                                       const std::string& default_float) {
  std::vector<std::pair<std::string, Arg>> converted;
  for (const py::handle& item : args) {
    const auto arg = item.cast<py::tuple>();
    converted.emplace_back(arg[0].cast<std::string>(),
                           ToArg(builder, arg[1].cast<std::string>(), arg[2]));
  }
  std::vector<std::optional<ir::Type>> types;
  for (const auto& result : results) {
    types.push_back(result ? std::optional(ToType(result->first, result->second)) : std::nullopt);
  }
  std::vector<std::optional<Value>> out;
  for (Op* value : builder.Call(op, std::move(converted), types, ParseDType(default_float)))
    out.push_back(value != nullptr ? std::optional(Value{value}) : std::nullopt);
  return out;
}

// (key, bytes) of what the cache on disk holds of the graph's executable.
py::list Neffs(const aten::CompiledGraph& graph) {
  std::vector<std::pair<std::string, std::string>> files;
  {
    const py::gil_scoped_release release;
    const std::string fingerprint = platform::GetDriver().compiler().Fingerprint();
    for (const std::string& hex : graph.executable().CacheKeys()) {
      const std::optional<Hash128> key = Hash128::FromHex(hex);
      NEURON_CHECK(key.has_value(), "the key '", hex, "'");
      const auto neff = neff::Cache::Default().Load(*key, fingerprint);
      if (neff) files.emplace_back(hex, neff::Serialize(*neff));
    }
  }
  py::list out;
  for (const auto& [key, bytes] : files) out.append(py::make_tuple(key, py::bytes(bytes)));
  return out;
}

// One dictionary per step: its work, and what MeasureSteps found.
py::list Steps(const aten::CompiledGraph& graph) {
  const std::vector<platform::StepWork> work = graph.executable().Work();
  const std::vector<platform::StepTime> times = graph.executable().StepTimes();
  py::list out;
  for (size_t i = 0; i < work.size(); ++i) {
    py::dict step;
    step["name"] = work[i].name;
    step["fused"] = work[i].fused;
    step["engine"] = work[i].engine;
    step["dtype"] = std::string(Name(work[i].dtype));
    step["bytes_read"] = work[i].bytes_read;
    step["bytes_written"] = work[i].bytes_written;
    step["flops"] = work[i].flops;
    step["transcendentals"] = work[i].transcendentals;
    step["runs"] = times[i].runs;
    step["nanoseconds"] = times[i].nanoseconds;
    step["least_nanoseconds"] = times[i].least_nanoseconds;
    out.append(step);
  }
  return out;
}

}  // namespace

void BindGraph(py::module_& m) {
  py::module_ sub = m.def_submodule("graph", "Whole graphs.");
  py::class_<Value>(sub, "Value");
  py::class_<lowering::GraphBuilder>(sub, "Builder")
      .def(py::init<std::string>(), py::arg("name"))
      .def("input",
           [](lowering::GraphBuilder& self, const std::string& dtype, const ir::Dims& dims,
              const ir::Dims& strides) {
             return Value{self.AddInput(ToType(dtype, dims), strides)};
           })
      .def("call", &Call)
      .def("output", [](lowering::GraphBuilder& self, const Value& value,
                        const ir::Dims& strides) { self.AddOutput(value.op, strides); })
      .def("text", [](lowering::GraphBuilder& self) { return ir::Print(self.Finish()); })
      .def_property_readonly("random_count", &lowering::GraphBuilder::random_count)
      .def(
          "compile",
          [](lowering::GraphBuilder& self) {
            return std::make_shared<aten::CompiledGraph>(self.Finish(), self.random_count());
          },
          py::call_guard<py::gil_scoped_release>());
  sub.def(
      "compile_text",
      [](const std::string& text, int64_t random_count) {
        const ir::Graph graph = ir::Parse(text);
        ir::Verify(graph);
        return std::make_shared<aten::CompiledGraph>(graph, random_count);
      },
      py::arg("text"), py::arg("random_count"), py::call_guard<py::gil_scoped_release>());
  py::class_<aten::CompiledGraph, std::shared_ptr<aten::CompiledGraph>>(sub, "CompiledGraph")
      .def("run", &aten::CompiledGraph::Run, py::arg("inputs"),
           py::call_guard<py::gil_scoped_release>())
      .def("describe", &aten::CompiledGraph::Describe)
      .def("steps", &Steps)
      .def(
          "measure_steps",
          [](const aten::CompiledGraph& self, bool on) { self.executable().MeasureSteps(on); },
          py::arg("on"))
      .def_property_readonly(
          "pending_steps",
          [](const aten::CompiledGraph& self) { return self.executable().PendingSteps(); })
      .def_property_readonly(
          "scratch_bytes",
          [](const aten::CompiledGraph& self) { return self.executable().scratch_bytes(); })
      .def_property_readonly("compile_nanoseconds",
                             [](const aten::CompiledGraph& self) {
                               const py::gil_scoped_release release;
                               return self.executable().CompileNanoseconds();
                             })
      .def_property_readonly("input_bytes", &aten::CompiledGraph::input_bytes)
      .def_property_readonly("output_bytes", &aten::CompiledGraph::output_bytes)
      .def("neffs", &Neffs);
  sub.def("lowered",
          [](const std::string& op) { return lowering::Table::Get().Find(op) != nullptr; });
}

}  // namespace neuron
