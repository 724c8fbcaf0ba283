// Elementary functions as LLVM IR. First form: what is one instruction; everything else is a helper
// call per lane.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "ir/graph.h"

namespace neuron::codegen {

// f32, scalar or vector of any width. nullptr: there is no vector code.
llvm::Value* EmitUnaryF32(llvm::IRBuilderBase& b, ir::OpCode op, llvm::Value* x);
llvm::Value* EmitUnaryF64(llvm::IRBuilderBase& b, ir::OpCode op, llvm::Value* x);
llvm::Value* EmitPowF32(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitAtan2F32(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitRoundToBf16(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* EmitBf16ToF32(llvm::IRBuilderBase& b, llvm::Value* bits);
llvm::Value* EmitMaximum(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitMinimum(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

}  // namespace neuron::codegen
