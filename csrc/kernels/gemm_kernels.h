// What an instruction set provides to the matrix product: the table that gemm.cc drives. One
// gemm_<isa>.cc each. Code there is compiled for its instruction set, so nothing in it may have
// external linkage but the table's getter: the linker could otherwise pick an AVX-512 copy of an
// inline function for everybody.
#pragma once

#include <cstdint>

#include "support/dtype.h"

namespace neuron::kernels {

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxTileVectors = 2;
// Products with so few rows read B once and unpacked.
inline constexpr int kMaxSkinnyRows = 16;

// A run of `count` <= width rows of A (or columns of B) into one panel, [k unit][width][k_unit],
// padded with zeros.
struct PackArgs {
  const void* source;
  int64_t stride;    // between the panel's rows (columns), in elements
  int64_t k_stride;  // along k, in elements
  int64_t k;
  int count, width;
  void* panel;
};

// `rows` x `cols` sums, to alpha * sum + beta * d in the result's dtype.
struct StoreArgs {
  const void* sums;
  int64_t sums_stride;
  int rows, cols;
  void* c;
  int64_t c_row_stride, c_col_stride;  // elements
  const void* d;                       // null: no addend
  int64_t d_row_stride, d_col_stride;
  double alpha, beta;
};

// out[rows][nr] = in + A panel * B panel over `units` k units. in null: zeros. in and out are sums,
// strides in elements. a_row_stride (bytes): only for kernels that read A unpacked, where a row's k
// units are contiguous. b_step: bytes from one k unit of B to the next.
using MicroKernel = void (*)(int64_t units, const void* a, int64_t a_row_stride, const void* b,
                             int64_t b_step, const void* in, int64_t in_stride, void* out,
                             int64_t out_stride);

// sums[m][n] = A * B for m <= kMaxSkinnyRows. A's rows are contiguous along k. Strides in elements.
using SkinnyKernel = void (*)(int64_t m, int64_t n, int64_t k, const void* a, int64_t a_stride,
                              const void* b, int64_t b_stride, float* sums, int64_t sums_stride);

struct GemmKernels {
  int max_rows;        // tallest tile
  int vector_columns;  // columns of one vector of sums
  int vectors;         // vectors of a full tile: nr = vector_columns * vectors
  int k_unit;          // elements of k that a kernel step takes together
  int packed_bytes;    // of one packed element
  int sum_bytes;       // of one sum
  int block_units;     // k units of a panel that stay in the L1 cache
  void (*pack)(const PackArgs&);
  void (*store)(const StoreArgs&);
  MicroKernel packed[kMaxTileVectors][kMaxTileRows];  // [vectors - 1][rows - 1]
  // As packed, but writes whole tiles of C in its dtype; null where there is none.
  MicroKernel final[kMaxTileVectors][kMaxTileRows];
  MicroKernel unpacked[kMaxTileVectors][kMaxTileRows];  // A read in place; null where there is none
  SkinnyKernel dots;  // B contiguous along k, b_stride between columns; null where there is none
  SkinnyKernel rows;  // B contiguous along n, b_stride between rows; null where there is none
  bool skinny_takes_f32;  // dots and rows take A as f32, else in its own dtype
  // To f32, contiguous: `count` elements from source at `stride`.
  void (*widen)(const void* source, int64_t stride, int64_t count, float* out);

  int nr() const { return vector_columns * vectors; }
};

namespace portable {
const GemmKernels* FindGemmKernels(DType dtype);  // null: not a dtype that can be multiplied
}
#if defined(__x86_64__)
namespace avx2 {
const GemmKernels* FindGemmKernels(DType dtype);
}
namespace avx512 {
const GemmKernels* FindGemmKernels(DType dtype);
}
namespace avx512_bf16 {
const GemmKernels* FindGemmKernels(DType dtype);  // null for all but bf16: the rest is avx512's
}
#endif

}  // namespace neuron::kernels
