// One product of the batch, and the ways to compute it. Internal to this folder.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "kernels/gemm.h"
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
  const GemmEpilogue* epilogue;  // null: none; else c may be null
  int64_t first_row;             // of C, of all batch items
  bool transposed;               // rows here are columns of C
};

// A part of the result and where it goes: its place in C, or a buffer of this thread.
struct GemmTarget {
  int64_t row, column, rows, columns;
  char* data;
  int64_t row_stride, col_stride;  // elements
};

GemmTarget TargetOf(const GemmProblem& p, int64_t row, int64_t column, int64_t rows,
                    int64_t columns);
// The target is written: hands it to the epilogue, if there is one.
void Finished(const GemmProblem& p, const GemmTarget& target);

// The kernels of that instruction set, null if the dtype cannot be multiplied.
const GemmKernels* FindGemmKernels(DType dtype, Isa isa);

// A and B packed into panels. Any layout.
void MultiplyBlocked(const GemmProblem& problem, bool parallel);

// m <= kMaxSkinnyRows, B read in place. False, and nothing done, if B's layout or the dtype does
// not allow it.
bool MultiplySkinny(const GemmProblem& problem, bool parallel);

}  // namespace neuron::kernels
