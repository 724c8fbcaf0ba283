#include "compiler/host_compiler.h"

#include "compiler/kernel_library.h"
#include "compiler/planner.h"
#include "compiler/simplify.h"
#include "compiler/split_reductions.h"
#include "compiler/stages.h"
#include "ir/graph.h"

namespace neuron::compiler {
namespace {

class Host final : public platform::Compiler {
 public:
  std::string Fingerprint() const override { return KernelLibrary::Get().fingerprint(); }

  std::shared_ptr<const platform::Executable> Compile(const ir::Graph& graph,
                                                      const platform::CompileOptions& o) override {
    ir::Verify(graph);
    if (o.dynamic_sizes) {  // a graph of one op of eager mode
      return HasSplittableReduction(graph) ? Plan(SplitReductions(graph)) : Plan(graph);
    }
    const Stages stages(graph.name());
    if (stages.on()) stages.Write("1_lowered.ir", ir::Print(graph));
    const ir::Graph simple = Simplify(graph);
    ir::Verify(simple);
    if (stages.on()) stages.Write("2_simplified.ir", ir::Print(simple));
    const ir::Graph split = SplitReductions(simple);
    ir::Verify(split);
    if (stages.on()) stages.Write("3_reductions_split.ir", ir::Print(split));
    auto executable = Plan(split);
    if (stages.on()) stages.Write("4_plan.txt", executable->Describe());
    return executable;
  }
};

}  // namespace

platform::Compiler* HostCompiler() {
  static Host compiler;
  return &compiler;
}

}  // namespace neuron::compiler
