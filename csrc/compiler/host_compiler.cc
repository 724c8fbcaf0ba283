#include "compiler/host_compiler.h"

#include "compiler/kernel_library.h"
#include "compiler/planner.h"
#include "ir/graph.h"

namespace neuron::compiler {
namespace {

class Host final : public platform::Compiler {
 public:
  std::string Fingerprint() const override { return KernelLibrary::Get().fingerprint(); }

  std::shared_ptr<const platform::Executable> Compile(const ir::Graph& graph,
                                                      const platform::CompileOptions&) override {
    ir::Verify(graph);
    return Plan(graph);
  }
};

}  // namespace

platform::Compiler* HostCompiler() {
  static Host compiler;
  return &compiler;
}

}  // namespace neuron::compiler
