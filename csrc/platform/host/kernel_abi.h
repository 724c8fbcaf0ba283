// The calling convention of generated kernels, shared by the code generator and the executor.
#pragma once

#include <cstdint>

namespace neuron::host {

// Filled by a kernel that met bad data; the executor turns it into the queue's failure.
struct KernelError {
  int64_t code = 0;   // 0: none; 1: index out of range; 2: division by zero; 3: no memory
  int64_t value = 0;  // the offending index
  int64_t limit = 0;  // the size of the dimension it indexes
};

struct KernelContext {
  // Scalar functions that generated code calls for what it has no vector code for: see helpers.h.
  void* const* helpers;
  KernelError* error;  // shared by all threads of a launch; any one of the writers wins
  void* kept;          // memory of this thread for what the kernel's passes keep; null: nothing
};

// Work items [begin, end) of a kernel. operands: base addresses; params: sizes, strides in elements
// and other constants of the launch; scalars: run-time scalars as 64-bit words (f64 bits or i64).
using KernelFn = void (*)(void* const* operands, const int64_t* params, const uint64_t* scalars,
                          int64_t begin, int64_t end, const KernelContext* context);

}  // namespace neuron::host
