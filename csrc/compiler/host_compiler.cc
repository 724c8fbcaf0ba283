#include "compiler/host_compiler.h"

#include "compiler/kernel_library.h"
#include "compiler/planner.h"
#include "compiler/simplify.h"
#include "ir/graph.h"

namespace neuron::compiler {
namespace {

class Host final : public platform::Compiler {
 public:
  std::string Fingerprint() const override { return KernelLibrary::Get().fingerprint(); }

  std::shared_ptr<const platform::Executable> Compile(const ir::Graph& graph,
                                                      const platform::CompileOptions& o) override {
    ir::Verify(graph);
    if (o.dynamic_sizes) return Plan(graph);  // a graph of one op of eager mode
    const ir::Graph simple = Simplify(graph);
    ir::Verify(simple);
    return Plan(simple);
  }
};

}  // namespace

platform::Compiler* HostCompiler() {
  static Host compiler;
  return &compiler;
}

}  // namespace neuron::compiler
