#include "python/distributed_bindings.h"

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "distributed/process_group.h"

namespace py = pybind11;

namespace neuron {

void BindDistributed(py::module_& m) {
  py::module_ sub = m.def_submodule("distributed", "The backend of torch.distributed.");
  sub.def(
      "create_process_group",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::vector<std::vector<int>> hosts, const c10::intrusive_ptr<c10d::Backend>& leaders,
         std::chrono::milliseconds timeout) -> c10::intrusive_ptr<c10d::Backend> {
        const py::gil_scoped_release release;
        return c10::make_intrusive<distributed::ProcessGroupNeuron>(
            store, rank, size, std::move(hosts), leaders, timeout);
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("hosts"),
      py::arg("leaders").none(true), py::arg("timeout"));
  sub.def(
      "find_hosts",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         std::chrono::milliseconds timeout) {
        const py::gil_scoped_release release;
        return distributed::FindHosts(*store, rank, size, timeout);
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"));
}

}  // namespace neuron
