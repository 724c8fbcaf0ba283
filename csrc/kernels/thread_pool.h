// The one pool of threads of this process. Every software NeuronCore shares it.
#pragma once

#include <cstdint>

#include "support/function_ref.h"

namespace neuron::kernels {

// Threads start at the first ParallelFor that needs them, spin briefly for work, then sleep.
class ThreadPool {
 public:
  // Created on first call; never destroyed (its threads end with the process).
  static ThreadPool& Get();

  // Threads that take part in ParallelFor, the caller included. At least 1.
  int size() const;

  // From the next ParallelFor on; n >= 1. Results of the kernels do not depend on it.
  void Resize(int n);

  // Calls fn(i) once for every i in [0, n), on the caller and on threads of the pool, and returns
  // when all calls have returned. n items are handed out dynamically, so results must not depend on
  // which thread runs which item. Runs inline when n == 1, size() == 1, or when called from inside
  // another ParallelFor. May be called by several threads at once. fn must not throw.
  void ParallelFor(int64_t n, FunctionRef<void(int64_t)> fn);
};

}  // namespace neuron::kernels
