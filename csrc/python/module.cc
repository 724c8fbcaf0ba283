// torch_neuronx._C: registers the device with torch and exposes what the Python package needs.
#include <pybind11/pybind11.h>

#include "aten/device/register.h"
#include "aten/library_functions.h"
#include "aten/op_kernel.h"
#include "compiler/host_compiler.h"
#include "platform/host/driver.h"
#include "platform/host/engines.h"
#include "python/compiler_bindings.h"
#include "python/device_bindings.h"
#include "python/distributed_bindings.h"
#include "python/errors.h"
#include "python/graph_bindings.h"
#include "python/ir_bindings.h"
#include "python/kernel_bindings.h"
#include "python/neff_bindings.h"
#include "python/platform_bindings.h"
#include "support/interrupt.h"

namespace {

// What the handlers of pending signals raised: KeyboardInterrupt, for one.
std::exception_ptr RunSignalHandlers() {
  if (Py_IsInitialized() == 0 || _Py_IsFinalizing() != 0) return nullptr;
  const pybind11::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return nullptr;
  return std::make_exception_ptr(pybind11::error_already_set());
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  using namespace neuron;
  m.doc() = "The extension of torch_neuronx: the device, its compiler and its platforms.";
  RegisterErrors(m);
  host::RegisterEngines();
  host::RegisterDataEngines();
  host::RegisterOrderEngines();
  aten::RegisterLibtorchFunctions();
  host::RegisterHostDriver(compiler::HostCompiler);
  aten::RegisterDevice();
  aten::RegisterOps();
  interrupt::SetCheck(RunSignalHandlers);
  BindDevice(m);
  BindCompiler(m);
  BindPlatform(m);
  BindKernels(m);
  BindGraph(m);
  BindIr(m);
  BindNeff(m);
  BindDistributed(m);
}
