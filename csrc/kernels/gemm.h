// Matrix products of the software NeuronCores.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"
#include "support/dtype.h"
#include "support/function_ref.h"

namespace neuron::kernels {

// A finished part of the result, for what follows element by element while it is in the cache.
struct GemmBlock {
  int64_t row, column;    // of its first element; rows of all batch items: i * m + row
  int64_t rows, columns;  // may reach across batch items
  const void* data;       // in the result's dtype; a row's elements follow each other
  int64_t row_stride;     // elements
};
using GemmEpilogue = FunctionRef<void(const GemmBlock&)>;

// For each i in [0, batch): C[i] = alpha * A[i] * B[i] + beta * D[i], with A m x k, B k x n, C and
// D m x n. All strides are in elements and not negative; stride 0 broadcasts (not in C).
struct GemmArgs {
  DType dtype = DType::kF32;  // of A, B, C and D: f32, bf16, f16, f64, i64, i32, i16, i8 or u8
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t a_batch_stride = 0, b_batch_stride = 0, c_batch_stride = 0;
  const void* a = nullptr;
  int64_t a_row_stride = 0, a_col_stride = 0;
  const void* b = nullptr;
  int64_t b_row_stride = 0, b_col_stride = 0;
  void* c = nullptr;
  int64_t c_row_stride = 0, c_col_stride = 0;
  double alpha = 1, beta = 0;  // truncated to integers for integer dtypes
  const void* d = nullptr;  // may be null; may be C itself (same strides); not read when beta == 0
  int64_t d_row_stride = 0, d_col_stride = 0, d_batch_stride = 0;
  // Called once for every part of C, by several threads; must not throw. With it c may be null: the
  // result is then nowhere but in the blocks, which die with the call. Otherwise c_col_stride == 1.
  const GemmEpilogue* epilogue = nullptr;
};

// Returns when C is written. Uses the ThreadPool if the work is worth waking a thread.
// Sums over all of k in f32 for f32, bf16 and f16 and in f64 for f64, and rounds once, at the end,
// to nearest even; integers wrap around. alpha == 0 leaves A and B unread, as in BLAS. The order of
// summation depends on the shape, the layout and the instruction set, never on the number of
// threads. On AVX512-BF16, products of bf16 treat denormals as zero (VDPBF16PS does). Throws
// kUnsupported for other dtypes and kInvalidArgument for negative sizes or strides.
void Gemm(const GemmArgs& args, Isa isa = ActiveIsa());

}  // namespace neuron::kernels
