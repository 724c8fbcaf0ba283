// The compiler half of the seam: a graph in, an executable out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "platform/executable.h"

namespace neuron::ir {
class Graph;
}

namespace neuron::platform {

struct CompileOptions {
  // Sizes, strides and scalars stay run-time arguments where the platform can, so that another size
  // compiles nothing (eager). Otherwise they are constants of the code (torch.compile).
  bool dynamic_sizes = true;
};

class Compiler {
 public:
  virtual ~Compiler() = default;
  // Whatever decides the meaning of compiled code: compiler version and CPU features.
  virtual std::string Fingerprint() const = 0;
  // Returns soon: code generation may go on in the background, and a launch waits for it. A failure
  // of code generation then surfaces as a failure of the launch. Throws kUnsupported for a graph
  // that this platform cannot run. Thread-safe.
  virtual std::shared_ptr<const Executable> Compile(const ir::Graph& graph,
                                                    const CompileOptions& options) = 0;
};

}  // namespace neuron::platform
