#include "aten/library_functions.h"

#include <ATen/core/TensorBody.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>

#include "aten/dtype.h"
#include "platform/host/engines.h"
#include "platform/host/library.h"

namespace neuron::aten {
namespace {

// libtorch's kernels run on OpenMP threads, which spin after each use. Small calls therefore stay
// on the calling thread. The library that torch has loaded is asked by name: linking another would
// start a second pool.
void SetOpenMpThreads(int threads) {
  using Set = void (*)(int);
  static const auto set = reinterpret_cast<Set>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (set != nullptr) set(threads);
}

int MaxOpenMpThreads() {
  using Get = int (*)();
  static const auto get = reinterpret_cast<Get>(dlsym(RTLD_DEFAULT, "omp_get_num_procs"));
  return get != nullptr ? get() : 1;
}

constexpr double kParallelFlops = 5e7;  // about a millisecond of one core

at::Tensor View(void* data, const host::TensorDesc& desc) {
  return at::from_blob(data, desc.dims, desc.strides,
                       at::TensorOptions().dtype(ToScalarType(desc.dtype)));
}

void Convolution(const host::LibraryCall& call) {
  if (host::CanConvolve(call)) return host::Convolve(call);
  const c10::InferenceMode guard;
  const size_t n = call.tensors.size();
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < n; ++i) tensors.push_back(View(call.data[i], call.tensors[i]));
  const auto& ints = call.attributes.ints;
  const auto rank = static_cast<size_t>(ints[2]);
  const auto list = [&](size_t which) {
    return c10::IntArrayRef(ints.data() + 3 + which * rank, rank);
  };
  at::Tensor& out = tensors.back();
  const double flops = 2.0 * static_cast<double>(out.numel()) *
                       static_cast<double>(tensors[1].numel()) /
                       static_cast<double>(std::max<int64_t>(1, tensors[1].size(0)));
  SetOpenMpThreads(flops < kParallelFlops ? 1 : MaxOpenMpThreads());
  std::optional<at::Tensor> bias;
  if (n == 4) bias = tensors[2];
  out.copy_(at::convolution(tensors[0], tensors[1], bias, list(0), list(1), list(2), ints[0] != 0,
                            list(3), ints[1]));
}

}  // namespace

void RegisterLibtorchFunctions() { host::RegisterLibraryFunction("convolution", Convolution); }

}  // namespace neuron::aten
