// Loop IR text -> LLVM IR -> optimised -> object -> blob.
#include <llvm/Analysis/CGSCCPassManager.h>
#include <llvm/Analysis/LoopAnalysisManager.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/DCE.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <cstdlib>
#include <cstring>
#include <mutex>

#include "compiler/llvm/api.h"
#include "compiler/llvm/emit.h"
#include "compiler/llvm/link.h"
#include "support/error.h"

namespace neuron::codegen {
namespace {

struct Isa {
  const char* name;
  const char* cpu;
  VectorTarget vectors;
};

constexpr Isa kIsas[] = {
    {"portable", "x86-64", {16, false, MathOptions()}},
    {"avx2", "x86-64-v3", {32, false, {.fma = true, .rounding = true, .scaling = false}}},
    {"avx512", "x86-64-v4", {64, true, {.fma = true, .rounding = true, .scaling = true}}},
    {"avx512_bf16", "x86-64-v4", {64, true, {.fma = true, .rounding = true, .scaling = true}}},
};

const Isa& FindIsa(const std::string& name) {
  for (const Isa& isa : kIsas) {
    if (name == isa.name) return isa;
  }
  NEURON_THROW(kInvalidArgument, "instruction set '", name,
               "': expected portable, avx2, avx512 or avx512_bf16");
}

std::unique_ptr<llvm::TargetMachine> MakeTarget(const Isa& isa) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  const llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  NEURON_CHECK(target != nullptr, error);
  return std::unique_ptr<llvm::TargetMachine>(
      target->createTargetMachine(triple, isa.cpu, "", llvm::TargetOptions(), llvm::Reloc::PIC_,
                                  llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

// The emitter already makes vectors and hoists rows; what is left is cleaning up.
void Optimize(llvm::Module& module, llvm::TargetMachine& machine) {
  llvm::PassBuilder builder(&machine);
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager sccs;
  llvm::ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), true));
  passes.addPass(llvm::EarlyCSEPass());
  passes.addPass(llvm::DCEPass());
  for (llvm::Function& function : module) {
    if (!function.isDeclaration()) passes.run(function, functions);
  }
}

std::string EmitFile(llvm::Module& module, llvm::TargetMachine& machine,
                     llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  NEURON_CHECK(!machine.addPassesToEmitFile(passes, stream, nullptr, type),
               "the target cannot emit this file");
  passes.run(module);
  return {buffer.data(), buffer.size()};
}

struct Compiled {
  Blob blob;
  std::string llvm_ir, assembly;
};

Compiled Compile(std::string_view text, const Isa& isa, bool want_text) {
  const loop::Kernel kernel = loop::Parse(text);
  const auto machine = MakeTarget(isa);
  llvm::LLVMContext context;
  llvm::Module module("neuron", context);
  module.setDataLayout(machine->createDataLayout());
  module.setTargetTriple(machine->getTargetTriple());
  Emitter(kernel, module, isa.vectors).Emit();
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(module, &stream))
    NEURON_THROW(kInternal, "kernel ", kernel.name, ": ", stream.str());
  Optimize(module, *machine);
  Compiled out;
  if (want_text) {
    llvm::raw_string_ostream ir(out.llvm_ir);
    module.print(ir, nullptr);
  }
  if (want_text)
    out.assembly =
        EmitFile(*llvm::CloneModule(module), *machine, llvm::CodeGenFileType::AssemblyFile);
  out.blob =
      Flatten(EmitFile(module, *machine, llvm::CodeGenFileType::ObjectFile), "neuron_kernel");
  return out;
}

char* Copy(const std::string& text) {
  char* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out != nullptr) std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

}  // namespace
}  // namespace neuron::codegen

neuron_codegen_result neuron_codegen_compile(const char* kernel, size_t kernel_size,
                                             const char* isa, int want_text) {
  neuron_codegen_result result{};
  try {
    const auto compiled = neuron::codegen::Compile({kernel, kernel_size},
                                                   neuron::codegen::FindIsa(isa), want_text != 0);
    result.code = neuron::codegen::Copy(compiled.blob.bytes);
    result.size = compiled.blob.bytes.size();
    result.entry = compiled.blob.entry;
    if (want_text != 0) {
      result.llvm_ir = neuron::codegen::Copy(compiled.llvm_ir);
      result.assembly = neuron::codegen::Copy(compiled.assembly);
    }
  } catch (const std::exception& error) {
    result.error = neuron::codegen::Copy(error.what());
  }
  return result;
}

void neuron_codegen_free(neuron_codegen_result* result) {
  for (char* text : {result->code, result->error, result->llvm_ir, result->assembly})
    std::free(text);
  *result = neuron_codegen_result{};
}
