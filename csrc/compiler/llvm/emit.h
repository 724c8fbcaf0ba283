// Turns one kernel of the loop IR into LLVM IR with explicit vectors.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "compiler/llvm/math.h"
#include "compiler/loop_ir.h"

namespace neuron::codegen {

// What the emitter must know about the target.
struct VectorTarget {
  int register_bytes = 32;    // of a vector register
  bool masked_tails = false;  // masked loads and stores of every element size are native
  MathOptions math;
};

class Emitter {
 public:
  Emitter(const loop::Kernel& kernel, llvm::Module& module, const VectorTarget& target);
  // Emits the function `neuron_kernel` with the signature host::KernelFn. Throws kUnsupported
  // naming the instruction that has no code.
  void Emit();

 private:
  using Values = std::vector<llvm::Value*>;
  // How many consecutive elements of the vector dimension are evaluated at once.
  struct Lanes {
    int width = 1;
    llvm::Value* mask = nullptr;  // <width x i1>: lanes that exist; null: all
  };

  // Structure (emit.cc)
  int ChooseWidth() const;
  void LoadArguments();
  void LocateKept();
  void EmitItems();
  void EmitItem(llvm::Value* item);
  void EmitVectorChunk(llvm::Value* item_chunk);
  void EmitPasses();
  void EmitPass(int stage);
  Values EmitReducedNest(size_t depth, const std::vector<int>& dims, int stage, Values carried);
  Values EmitReducedVectorLoop(int stage, Values carried);
  void EmitReady(uint32_t fixed_dims, int stage);
  void EmitElementStores(int stage);
  Values Loop(llvm::Value* begin, llvm::Value* end, int64_t step, Values carried,
              const std::function<Values(llvm::Value*, const Values&)>& body);
  Values If(llvm::Value* condition, Values otherwise, const std::function<Values()>& then);
  llvm::Value* TailMask(llvm::Value* index, llvm::Value* end, int width);

  // Reductions (emit_reduce.cc)
  std::vector<int> ReductionsOf(int stage) const;
  Values Identity(const loop::Inst& inst, int width);
  Values Accumulate(const loop::Inst& inst, const Values& acc);
  Values Combine(const loop::Inst& inst, const Values& a, const Values& b);
  Values Horizontal(const loop::Inst& inst, Values acc, int width);
  int AccumulatorsOf(const loop::Inst& inst) const;

  // Instructions (emit_inst.cc)
  llvm::Value* Get(int id);
  llvm::Value* EmitInst(int id);
  llvm::Value* EmitKept(int id);
  llvm::Value* EmitLoad(int id);
  llvm::Value* EmitGather(llvm::Type* memory, llvm::Value* base, llvm::Value* offsets);
  void EmitStore(int id);
  llvm::Value* EmitIndex(int id);
  llvm::Value* EmitConst(const loop::Inst& inst);
  llvm::Value* EmitScalar(const loop::Inst& inst);
  // Element offset of an access without the lanes of the vector dimension; *varying gets the
  // per-lane part (null if none) when the access is neither uniform nor contiguous over the lanes.
  llvm::Value* Address(int id, llvm::Value** varying, bool* contiguous);
  llvm::Value* IndirectTerm(int id, size_t which);
  void FailIf(llvm::Value* bad, llvm::Value* index, llvm::Value* limit, int64_t code);
  llvm::Value* FromMemory(llvm::Value* value, DType dtype);
  llvm::Value* ToMemory(llvm::Value* value, DType dtype);

  // Elementwise operations (emit_compute.cc)
  llvm::Value* EmitCompute(const loop::Inst& inst);
  llvm::Value* EmitFloat(const loop::Inst& inst, std::vector<llvm::Value*> args);
  llvm::Value* EmitInteger(const loop::Inst& inst, DType dtype, std::vector<llvm::Value*> args);
  llvm::Value* EmitIntegerDivision(const loop::Inst& inst, DType dtype, llvm::Value* a,
                                   llvm::Value* b);
  llvm::Value* EmitIntegerPower(llvm::Value* base, llvm::Value* exponent);
  llvm::Value* EmitCompare(const loop::Inst& inst, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* EmitConvert(llvm::Value* value, DType from, DType to);
  llvm::Value* EmitHelperCall(const loop::Inst& inst, std::vector<llvm::Value*> args);
  llvm::Value* EmitPhilox(const loop::Inst& inst);
  llvm::Value* ToF32(llvm::Value* value, DType from);
  llvm::Value* FromF32(llvm::Value* value, DType to);

  // Types and lanes
  llvm::Type* LaneType(DType dtype);
  llvm::Type* MemoryType(DType dtype);
  llvm::Type* Widened(llvm::Type* scalar, int width);
  llvm::Value* Splat(llvm::Value* value, int width);
  llvm::Value* LaneOffsets(int width);  // <width x i64> 0, 1, 2...
  bool Varies(int id) const { return (masks_[id] >> kernel_.vector_dim) & 1; }
  llvm::Value* I64(int64_t value) { return b_.getInt64(static_cast<uint64_t>(value)); }

  const loop::Kernel& kernel_;
  llvm::Module& module_;
  VectorTarget target_;
  llvm::IRBuilder<> b_;
  llvm::Function* function_ = nullptr;

  std::vector<uint32_t> masks_;   // dimensions that each instruction depends on
  std::vector<int> ready_;        // passes that must be over before each instruction can run
  std::vector<uint32_t> passes_;  // that evaluate each instruction
  Values kept_;                   // where the values of each kept instruction lie
  int pass_ = 0;                  // the current one
  int stages_ = 0;
  uint32_t reduced_mask_ = 0;
  int width_ = 1;

  Values sizes_, bases_;
  llvm::Value* chunk_ = nullptr;
  llvm::Value* chunks_ = nullptr;
  std::vector<Values> params_;  // per instruction
  Values index_;                // current index per dimension
  Lanes lanes_;
  Values cache_;  // value of each instruction in the current scope
};

}  // namespace neuron::codegen
