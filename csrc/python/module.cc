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
  BindDevice(m);
  BindCompiler(m);
  BindPlatform(m);
  BindKernels(m);
  BindGraph(m);
  BindIr(m);
  BindNeff(m);
  BindDistributed(m);
}
