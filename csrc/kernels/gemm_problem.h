// One product of the batch, and the ways to compute it. Internal to this folder.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "kernels/gemm_kernels.h"

namespace neuron::kernels {

// As GemmArgs, strides in elements.
struct GemmProblem {
  const GemmKernels* kernels;
  int64_t element_bytes;
  int64_t m, n, k;
  const char* a;
  int64_t a_row, a_col;
  const char* b;
  int64_t b_row, b_col;
  char* c;
  int64_t c_row, c_col;
  const char* d;  // null: no addend
  int64_t d_row, d_col;
  double alpha, beta;
};

// The kernels of that instruction set, null if the dtype cannot be multiplied.
const GemmKernels* FindGemmKernels(DType dtype, Isa isa);

// A and B packed into panels. Any layout.
void MultiplyBlocked(const GemmProblem& problem, bool parallel);

// m <= kMaxSkinnyRows, B read in place. False, and nothing done, if B's layout or the dtype does
// not allow it.
bool MultiplySkinny(const GemmProblem& problem, bool parallel);

}  // namespace neuron::kernels
