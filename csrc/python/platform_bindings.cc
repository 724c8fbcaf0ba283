#include "python/platform_bindings.h"

#include <pybind11/stl.h>

#include <cstring>

#include "ir/graph.h"
#include "platform/driver.h"

namespace py = pybind11;

namespace neuron {
namespace {

using platform::DeviceAddress;

// Host memory is kept by the queue until the copy was done.
void CopyToDevice(platform::Queue& queue, DeviceAddress destination, const py::bytes& data) {
  const auto text = std::make_shared<std::string>(data);
  queue.CopyToDevice(destination, text->data(), text->size(), text);
}

py::bytes CopyFromDevice(platform::Queue& queue, DeviceAddress source, size_t bytes) {
  std::string data(bytes, '\0');
  {
    const py::gil_scoped_release release;
    queue.CopyFromDevice(data.data(), source, bytes);
    queue.Synchronize();
  }
  return py::bytes(data);
}

// The callable runs on the queue's thread; what it raises becomes the queue's failure.
void Enqueue(platform::Queue& queue, py::function function) {
  const auto shared =
      std::shared_ptr<py::function>(new py::function(std::move(function)), [](py::function* f) {
        const py::gil_scoped_acquire gil;
        const std::unique_ptr<py::function> owned(f);
      });
  const py::gil_scoped_release
      release;  // the ring may be full, and its tasks may need the interpreter
  queue.Enqueue([shared] {
    const py::gil_scoped_acquire gil;
    try {
      (*shared)();
    } catch (py::error_already_set& error) {
      NEURON_THROW(kFailedExecution, error.what());
    }
  });
}

void Launch(platform::Queue& queue, std::shared_ptr<platform::Executable> executable,
            std::vector<DeviceAddress> operands, const std::vector<uint64_t>& scalars,
            const std::string& op, const std::string& arguments, const std::string& call_site) {
  auto context = std::make_shared<platform::LaunchContext>();
  context->op = op;
  context->arguments = arguments;
  context->call_site = call_site;
  const py::gil_scoped_release release;
  queue.Launch(std::move(executable), operands, scalars, std::move(context));
}

void BindQueue(py::module_& m) {
  using platform::Queue;
  py::class_<Queue>(m, "Queue")
      .def("copy_to_device", &CopyToDevice)
      .def("copy_from_device", &CopyFromDevice)
      .def("copy_on_device", &Queue::CopyOnDevice)
      .def("fill", &Queue::Fill)
      .def("enqueue", &Enqueue)
      .def("record", &Queue::Record)
      .def("wait_for", &Queue::WaitFor)
      .def("launch", &Launch, py::arg("executable"), py::arg("operands"),
           py::arg("scalars") = std::vector<uint64_t>(), py::arg("op") = "",
           py::arg("arguments") = "", py::arg("call_site") = "")
      .def("idle", &Queue::Idle)
      .def("synchronize", &Queue::Synchronize, py::call_guard<py::gil_scoped_release>());
}

}  // namespace

void BindPlatform(py::module_& m) {
  py::module_ sub = m.def_submodule("platform", "Driver, devices, queues, events, compiler.");
  BindQueue(sub);
  py::class_<platform::Event>(sub, "Event")
      .def("query", &platform::Event::Query)
      .def("wait", &platform::Event::Wait, py::call_guard<py::gil_scoped_release>())
      .def("time", &platform::Event::CompletionTimeNanoseconds);
  py::class_<platform::Executable, std::shared_ptr<platform::Executable>>(sub, "Executable")
      .def("num_operands", &platform::Executable::num_operands)
      .def("num_scalars", &platform::Executable::num_scalars)
      .def("scratch_bytes", &platform::Executable::scratch_bytes)
      .def("can_fail", &platform::Executable::CanFail)
      .def("describe", &platform::Executable::Describe);
  py::class_<platform::Device>(sub, "Device")
      .def("index", &platform::Device::index)
      .def("name", [](platform::Device& self) { return self.properties().name; })
      .def("total_memory", [](platform::Device& self) { return self.memory().total; })
      .def("used_memory", [](platform::Device& self) { return self.memory().used; })
      .def("allocate", &platform::Device::Allocate)
      .def("free", &platform::Device::Free)
      .def("queue", &platform::Device::CreateQueue, py::arg("priority") = 0)
      .def("event", &platform::Device::CreateEvent, py::arg("timing") = false);
  sub.def("driver_name", [] { return platform::GetDriver().name(); });
  sub.def("device_count", [] { return platform::GetDriver().device_count(); });
  sub.def(
      "device", [](int index) { return &platform::GetDriver().device(index); },
      py::return_value_policy::reference);
  sub.def("fingerprint", [] { return platform::GetDriver().compiler().Fingerprint(); });
  sub.def("compile", [](const std::string& graph) {
    return std::const_pointer_cast<platform::Executable>(
        platform::GetDriver().compiler().Compile(ir::Parse(graph), {.dynamic_sizes = true}));
  });
}

}  // namespace neuron
