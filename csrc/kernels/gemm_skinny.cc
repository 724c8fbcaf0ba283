#include <algorithm>
#include <cstring>

#include "kernels/gemm_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kSumsBytes = 16 << 10;  // sums of one block, to stay in the L1 cache
constexpr int64_t kMaxRowsBlock =
    256;  // so do two groups of rows of B: those in use and those on their way
constexpr int64_t kMinBlock = 64;

void Run(int64_t tasks, bool parallel, FunctionRef<void(int64_t)> fn) {
  if (parallel) return ThreadPool::Get().ParallelFor(tasks, fn);
  for (int64_t i = 0; i < tasks; ++i) fn(i);
}

struct Rows {
  const void* data;
  int64_t stride;
};

// A with rows contiguous along k, as f32 if the kernel wants that. Several rows are copied even if
// they are so already: at strides of whole pages they would compete for the same few lines of the
// L1 cache.
Rows ContiguousRows(const GemmProblem& p, bool f32) {
  if (p.m == 1 && p.a_col == 1 && (!f32 || p.element_bytes == 4)) return {p.a, p.a_row};
  const int64_t bytes = f32 ? 4 : p.element_bytes;
  const int64_t stride = (p.k * bytes + 127) / 64 * 64 / bytes;
  char* rows =
      static_cast<char*>(GetScratch(Scratch::kShared, static_cast<size_t>(p.m * stride * bytes)));
  for (int64_t i = 0; i < p.m; ++i) {
    const char* from = p.a + i * p.a_row * p.element_bytes;
    char* to = rows + i * stride * bytes;
    if (f32) {
      p.kernels->widen(from, p.a_col, p.k, reinterpret_cast<float*>(to));
    } else if (p.a_col == 1) {
      std::memcpy(to, from, static_cast<size_t>(p.k * bytes));
    } else {
      for (int64_t k = 0; k < p.k; ++k) {
        std::memcpy(to + k * bytes, from + k * p.a_col * bytes, static_cast<size_t>(bytes));
      }
    }
  }
  return {rows, stride};
}

}  // namespace

bool MultiplySkinny(const GemmProblem& p, bool parallel) {
  const GemmKernels& kernels = *p.kernels;
  const bool dots = p.b_row == 1 && kernels.dots != nullptr;
  if (p.k == 0 || (!dots && (p.b_col != 1 || kernels.rows == nullptr))) return false;
  const SkinnyKernel kernel = dots ? kernels.dots : kernels.rows;
  const Rows rows = ContiguousRows(p, kernels.skinny_takes_f32);
  const int64_t b_stride = dots ? p.b_col : p.b_row;
  const int64_t threads = parallel ? ThreadPool::Get().size() : 1;
  const int64_t fits = dots ? kSumsBytes / 4 / p.m : std::min(kSumsBytes / 4 / p.m, kMaxRowsBlock);
  int64_t block = std::min(fits, (p.n + 4 * threads - 1) / (4 * threads));
  block = std::max(kMinBlock, block / kMinBlock * kMinBlock);
  Run((p.n + block - 1) / block, parallel, [&](int64_t task) {
    const int64_t n0 = task * block;
    const int64_t columns = std::min(block, p.n - n0);
    float* sums =
        static_cast<float*>(GetScratch(Scratch::kSums, static_cast<size_t>(p.m * block * 4)));
    kernel(p.m, columns, p.k, rows.data, rows.stride, p.b + n0 * p.b_col * p.element_bytes,
           b_stride, sums, block);
    const GemmTarget target = TargetOf(p, 0, n0, p.m, columns);
    StoreArgs store{};
    store.sums = sums;
    store.sums_stride = block;
    store.rows = static_cast<int>(p.m);
    store.cols = static_cast<int>(columns);
    store.c = target.data;
    store.c_row_stride = target.row_stride;
    store.c_col_stride = target.col_stride;
    store.d = p.d == nullptr ? nullptr : p.d + n0 * p.d_col * p.element_bytes;
    store.d_row_stride = p.d_row;
    store.d_col_stride = p.d_col;
    store.alpha = p.alpha;
    store.beta = p.beta;
    kernels.store(store);
    Finished(p, target);
  });
  return true;
}

}  // namespace neuron::kernels
