// Copies that change the order of dimensions.
#pragma once

#include <cstdint>

#include "kernels/cpu.h"

namespace neuron::kernels {

inline constexpr int kMaxPermuteRank = 8;

// out[i] = source[i] for every index i within dims; strides in elements of `element_bytes` (1, 2, 4
// or 8) bytes, not negative. source and out do not overlap, and no two elements of out share
// memory.
struct PermuteArgs {
  int64_t element_bytes = 4;
  int rank = 0;
  int64_t dims[kMaxPermuteRank] = {};
  const void* source = nullptr;
  int64_t source_strides[kMaxPermuteRank] = {};
  void* out = nullptr;
  int64_t out_strides[kMaxPermuteRank] = {};
};

// Whether Permute has a fast way: one dimension lies contiguously in the source and one in `out`,
// both worth a vector. If it is the same dimension, runs are copied, else tiles are transposed.
bool CanPermute(const PermuteArgs& args);

// Returns when `out` is written; uses the ThreadPool if the work is worth it. Throws
// kInvalidArgument unless CanPermute(args).
void Permute(const PermuteArgs& args, Isa isa = ActiveIsa());

// out[j * out_stride + i] = source[i * source_stride + j] for i < rows, j < cols, on this thread.
void Transpose(int64_t element_bytes, int64_t rows, int64_t cols, const void* source,
               int64_t source_stride, void* out, int64_t out_stride, Isa isa = ActiveIsa());

}  // namespace neuron::kernels
