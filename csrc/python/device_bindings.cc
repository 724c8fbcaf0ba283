#include "python/device_bindings.h"

#include <frameobject.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "aten/call_site.h"
#include "aten/device/generator.h"
#include "aten/device/pinned.h"
#include "platform/driver.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/metrics.h"
#include "runtime/stream.h"
#include "support/env.h"
#include "support/error.h"
#include "support/logging.h"

namespace py = pybind11;

namespace neuron {
namespace {

// Directories of the packages whose frames are not the user's, each ending in '/'. Not any folder
// of such a name: the user's own project may be called so. Needs the GIL.
const std::vector<std::string>& LibraryFolders() {
  // Never destroyed: queues report errors until the process ends.
  static auto* const folders = new std::vector<std::string>();
  if (!folders->empty()) return *folders;
  const py::dict modules = py::module_::import("sys").attr("modules");
  std::vector<std::string> found;
  for (const char* name : {"torch", "torch_neuronx"}) {
    if (!modules.contains(name) || !py::hasattr(modules[name], "__path__")) continue;
    for (const py::handle path : modules[name].attr("__path__"))
      found.push_back(path.cast<std::string>() + "/");
  }
  if (folders->empty()) *folders = std::move(found);  // Python code above may have let others in
  return *folders;
}

bool IsLibraryFrame(const std::string& file) {
  return std::any_of(LibraryFolders().begin(), LibraryFolders().end(),
                     [&](const std::string& folder) { return file.starts_with(folder); });
}

std::string CallSite() {
  if (!Py_IsInitialized()) return "";
  const py::gil_scoped_acquire gil;
  PyThreadState* state = PyThreadState_Get();
  auto frame =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(state)));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code =
        py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const auto file = code.attr("co_filename").cast<std::string>();
    if (!IsLibraryFrame(file)) {
      return file + ":" + std::to_string(PyFrame_GetLineNumber(raw)) + " in " +
             code.attr("co_name").cast<std::string>();
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return "";
}

void WarnInPython(const std::string& message) {
  const py::gil_scoped_acquire gil;
  if (PyErr_WarnEx(PyExc_UserWarning, message.c_str(), 1) != 0) throw py::error_already_set();
}

py::dict StatDict(const runtime::Stat& stat) {
  py::dict out;
  out["current"] = stat.current;
  out["peak"] = stat.peak;
  out["allocated"] = stat.allocated;
  out["freed"] = stat.freed;
  return out;
}

py::dict MemoryStats(int device) {
  const runtime::AllocatorStats stats = runtime::GetAllocatorStats(device);
  py::dict out;
  out["allocation"] = StatDict(stats.allocation);
  out["segment"] = StatDict(stats.segment);
  out["active"] = StatDict(stats.active);
  out["inactive_split"] = StatDict(stats.inactive_split);
  out["allocated_bytes"] = StatDict(stats.allocated_bytes);
  out["reserved_bytes"] = StatDict(stats.reserved_bytes);
  out["active_bytes"] = StatDict(stats.active_bytes);
  out["inactive_split_bytes"] = StatDict(stats.inactive_split_bytes);
  out["requested_bytes"] = StatDict(stats.requested_bytes);
  out["num_alloc_retries"] = stats.num_alloc_retries;
  out["num_ooms"] = stats.num_ooms;
  out["num_device_alloc"] = stats.num_device_alloc;
  out["num_device_free"] = stats.num_device_free;
  out["allocation_requests"] = stats.allocation_requests;
  out["num_tensor_frees"] = stats.num_tensor_frees;
  return out;
}

py::list MemorySnapshot(int device) {
  py::list out;
  for (const runtime::SegmentSnapshot& segment : runtime::Snapshot(device)) {
    py::list blocks;
    for (const runtime::BlockSnapshot& block : segment.blocks) {
      py::dict entry;
      entry["address"] = block.address;
      entry["size"] = block.size;
      entry["requested_size"] = block.requested_size;
      entry["state"] = block.allocated ? "active_allocated"
                       : block.active  ? "active_pending_free"
                                       : "inactive";
      blocks.append(entry);
    }
    py::dict entry;
    entry["device"] = device;
    entry["address"] = segment.address;
    entry["total_size"] = segment.size;
    entry["stream"] = segment.stream;
    entry["segment_type"] = segment.is_large ? "large" : "small";
    entry["blocks"] = blocks;
    out.append(entry);
  }
  return out;
}

py::dict Properties(int device) {
  const auto properties = runtime::GetDevice(device).properties();
  py::dict out;
  out["name"] = properties.name;
  out["instruction_set"] = properties.instruction_set;
  out["total_memory"] = properties.total_memory;
  out["num_threads"] = properties.num_threads;
  out["num_cores"] = properties.num_cores;
  return out;
}

py::dict CompilationMetrics() {
  const auto& metrics = runtime::GetCompilationMetrics();
  py::dict out;
  out["compilations"] = metrics.compilations.load();
  out["memory_hits"] = metrics.memory_hits.load();
  out["disk_hits"] = metrics.disk_hits.load();
  out["compile_seconds"] = static_cast<double>(metrics.compile_nanoseconds.load()) * 1e-9;
  out["disk_writes"] = metrics.disk_writes.load();
  out["disk_rejected"] = metrics.disk_rejected.load();
  out["disk_write_failures"] = metrics.disk_write_failures.load();
  out["disk_evicted"] = metrics.disk_evicted.load();
  out["disk_stale_removed"] = metrics.disk_stale_removed.load();
  out["lock_timeouts"] = metrics.lock_timeouts.load();
  return out;
}

// Per metric: (samples ever, their sum, [(seconds since the epoch, value)] of the last ones).
py::dict CompilationSamples() {
  const auto& metrics = runtime::GetCompilationMetrics();
  py::dict out;
  const auto add = [&](const char* name, const runtime::Samples& samples) {
    const runtime::Samples::State state = samples.Get();
    py::list last;
    for (const auto& sample : state.last) last.append(py::make_tuple(sample.time, sample.value));
    out[name] = py::make_tuple(state.total, state.sum, last);
  };
  add("compile_times", metrics.compile_times);
  add("neff_sizes", metrics.neff_sizes);
  add("code_bytes", metrics.code_bytes);
  return out;
}

py::dict Fallbacks() {
  py::dict out;
  for (const auto& [name, count] : runtime::FallbackOps()) {
    py::dict entry;
    entry["calls"] = count.calls;
    entry["bytes"] = count.bytes;
    out[py::str(name)] = entry;
  }
  return out;
}

py::dict HostMemoryStats() {
  const at::HostStats stats = aten::PinnedAllocator()->get_stats();
  const auto entry = [](const auto& stat) {
    return StatDict({stat.current, stat.peak, stat.allocated, stat.freed});
  };
  py::dict out;
  out["active_requests"] = entry(stats.active_requests);
  out["active_bytes"] = entry(stats.active_bytes);
  out["allocations"] = entry(stats.allocations);
  out["allocated_bytes"] = entry(stats.allocated_bytes);
  out["num_host_alloc"] = stats.num_host_alloc;
  out["num_host_free"] = stats.num_host_free;
  return out;
}

// Keeps the current stream busy.
void Sleep(int64_t nanoseconds) {
  if (nanoseconds < 0)
    NEURON_THROW(kInvalidArgument, "cannot sleep for ", nanoseconds, " nanoseconds");
  runtime::Initialize();
  runtime::CurrentStream(runtime::CurrentDevice()).queue().Enqueue([nanoseconds] {
    std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
  });
}

void BindMemory(py::module_& m) {
  m.def("host_memory_stats", &HostMemoryStats);
  m.def("reset_peak_host_memory_stats", [] { aten::PinnedAllocator()->reset_peak_stats(); });
  m.def("reset_accumulated_host_memory_stats",
        [] { aten::PinnedAllocator()->reset_accumulated_stats(); });
  m.def("memory_stats", &MemoryStats, py::arg("device"));
  m.def("memory_snapshot", &MemorySnapshot, py::arg("device"));
  m.def("empty_cache", &runtime::EmptyCache, py::arg("device"),
        py::call_guard<py::gil_scoped_release>());
  m.def("reset_peak_memory_stats", &runtime::ResetPeakStats, py::arg("device"));
  m.def("reset_accumulated_memory_stats", &runtime::ResetAccumulatedStats, py::arg("device"));
  m.def(
      "memory_info",
      [](int device) {
        const auto info = runtime::GetDevice(device).memory();
        return py::make_tuple(info.total - info.used, info.total);
      },
      py::arg("device"));
  m.def("set_memory_fraction", &runtime::SetMemoryFraction, py::arg("device"), py::arg("fraction"));
  m.def(
      "allocate",
      [](int device, size_t bytes, int64_t stream) {
        return runtime::Allocate(device, bytes, runtime::GetStream(device, stream));
      },
      py::arg("device"), py::arg("bytes"), py::arg("stream"));
  m.def("free", &runtime::Free, py::arg("address"));
  m.def("get_memory_fraction", &runtime::GetMemoryFraction, py::arg("device"));
}

}  // namespace

void BindDevice(py::module_& m) {
  aten::SetCallSiteProvider(&CallSite);
  SetWarningSink(&WarnInPython);
  py::module_ sub = m.def_submodule("device", "Devices, memory, counters.");
  sub.def("device_count", &runtime::DeviceCount);
  sub.def("platform", [] { return platform::GetDriver().name(); });
  sub.def("current_device", &runtime::CurrentDevice);
  sub.def("set_device", &runtime::SetDevice, py::arg("device"));
  sub.def("set_default_device", &runtime::SetDefaultDevice, py::arg("device"));
  sub.def("is_initialized", &runtime::IsInitialized);
  sub.def("init", &runtime::Initialize);
  sub.def("is_in_bad_fork", &runtime::IsInBadFork);
  sub.def("sleep", &Sleep, py::arg("nanoseconds"), py::call_guard<py::gil_scoped_release>());
  sub.def("synchronize", &runtime::SynchronizeDevice, py::arg("device"),
          py::call_guard<py::gil_scoped_release>());
  sub.def(
      "stream_priority",
      [](int device, int64_t id) { return runtime::GetStream(device, id).priority(); },
      py::arg("device"), py::arg("stream_id"));
  sub.def(
      "default_generator",
      [](int device) {
        const at::Generator& generator =
            aten::DefaultGenerator(static_cast<c10::DeviceIndex>(device));
        return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(generator));
      },
      py::arg("device"));
  sub.def("device_properties", &Properties, py::arg("device"));
  sub.def("executed_ops", &runtime::ExecutedOps);
  sub.def("library_ops", &runtime::LibraryOps);
  sub.def("fallback_ops", &Fallbacks);
  sub.def("clear_op_tracking", &runtime::ClearOpTracking);
  sub.def("compilation_metrics", &CompilationMetrics);
  sub.def("compilation_samples", &CompilationSamples);
  sub.def(
      "env_bool",
      [](const std::string& name) {
        const std::vector<env::Description> rows = env::Describe();
        for (size_t i = 0; i < rows.size(); ++i) {
          if (rows[i].name == name) return env::GetBool(static_cast<env::Id>(i));
        }
        NEURON_THROW(kInvalidArgument, "no environment variable ", name, " is declared");
      },
      py::arg("name"));
  sub.def("env_table", [] {
    py::list out;
    for (const env::Description& row : env::Describe()) {
      out.append(py::make_tuple(row.name, row.kind, row.default_value, row.help));
    }
    return out;
  });
  BindMemory(sub);
}

}  // namespace neuron
