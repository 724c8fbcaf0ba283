// Elementary functions as LLVM IR, without calls: every vector lane at once.
//
// Values are f32 (or where said f64), scalar or vector of any width. NaN gives NaN; signed zeros,
// infinities, overflow, and denormal arguments and results are as in C's float functions. Largest
// errors in units in the last place (ULP), for f32:
//
//   exact, or rounded once   abs negate sign floor ceil trunc round_nearest_even sqrt
//   in f64: 0.51             log2 log10 tan asin acos atan sinh cosh asinh acosh atanh erfc erf_inv
//                            pow atan2
//   in f32: 1.1              log exp; with FMA also exp2 (without: 1.3)
//   in f32: 1.5              expm1 log1p sin cos tanh logistic erf rsqrt
//
// Measured against f64 libm on every 61st f32 or more; pow and atan2 on 10^7 random pairs and more.
#pragma once

#include <llvm/IR/IRBuilder.h>

#include "ir/graph.h"

namespace neuron::codegen {

// What the target has. False costs speed only; true on a target that lacks the instructions makes
// calls to libm.
struct MathOptions {
  bool fma = false;       // fused multiply-add of f32 and f64
  bool rounding = false;  // instructions for floor, ceil, trunc and nearest even (SSE4.1)
  bool scaling = false;   // instruction for x * 2^n (AVX-512)
};

// nullptr: there is no vector code for `op`. Sine, cosine and tangent end the current basic block:
// the insertion point, which must be at the end of a block, moves to the block that continues.
llvm::Value* EmitUnaryF32(llvm::IRBuilderBase& b, ir::OpCode op, llvm::Value* x,
                          MathOptions options = {});
// Only what is exact or one instruction; nullptr for the rest.
llvm::Value* EmitUnaryF64(llvm::IRBuilderBase& b, ir::OpCode op, llvm::Value* x,
                          MathOptions options = {});
// C's powf and atan2f(y, x), all special cases included.
llvm::Value* EmitPowF32(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitAtan2F32(llvm::IRBuilderBase& b, llvm::Value* y, llvm::Value* x);

// f32 -> bits of bf16 (i16), nearest even; every NaN becomes 0x7fc0, as in c10::BFloat16.
llvm::Value* EmitRoundToBf16(llvm::IRBuilderBase& b, llvm::Value* x);
llvm::Value* EmitBf16ToF32(llvm::IRBuilderBase& b, llvm::Value* bits);

// f32 or f64. NaN if either is NaN; of two zeros of different sign, y.
llvm::Value* EmitMaximum(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);
llvm::Value* EmitMinimum(llvm::IRBuilderBase& b, llvm::Value* x, llvm::Value* y);

}  // namespace neuron::codegen
