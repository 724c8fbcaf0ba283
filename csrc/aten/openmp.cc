#include "aten/openmp.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include "runtime/device.h"

namespace neuron::aten {
namespace {

// The library that torch has loaded is asked by name: linking another would start a second pool.
template <typename Function>
Function Find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

int Get(const char* name) {
  const auto get = Find<int (*)()>(name);
  return get != nullptr ? get() : 0;
}

void Set(int threads) {
  static const auto set = Find<void (*)(int)>("omp_set_num_threads");
  if (set != nullptr) set(threads);
}

}  // namespace

OpenMpThreads::OpenMpThreads(bool parallel) {
  at::get_num_threads();  // a thread's first question sets its number; later ones leave it alone
  before_ = Get("omp_get_max_threads");
  Set(parallel ? runtime::GetDevice(0).properties().num_threads : 1);
}

OpenMpThreads::~OpenMpThreads() {
  if (before_ > 0) Set(before_);
}

}  // namespace neuron::aten
