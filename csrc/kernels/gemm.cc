#include "kernels/gemm.h"

#include <algorithm>
#include <utility>

#include "kernels/gemm_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

// Below this many multiplications, waking a thread costs more than it saves.
constexpr double kParallelWork = 5e5;

void Check(const GemmArgs& g) {
  const int64_t values[] = {g.m,
                            g.n,
                            g.k,
                            g.batch,
                            g.a_batch_stride,
                            g.b_batch_stride,
                            g.a_row_stride,
                            g.a_col_stride,
                            g.b_row_stride,
                            g.b_col_stride,
                            g.c_batch_stride,
                            g.c_row_stride,
                            g.c_col_stride,
                            g.d_row_stride,
                            g.d_col_stride,
                            g.d_batch_stride};
  for (int64_t value : values) {
    if (value < 0) NEURON_THROW(kInvalidArgument, "gemm: negative size or stride ", value);
  }
  if (g.epilogue != nullptr && g.c != nullptr && g.c_col_stride != 1)
    NEURON_THROW(kInvalidArgument, "gemm: an epilogue needs c_col_stride 1, not ", g.c_col_stride);
}

// B of all batch items is the same and the rows of A, C and D follow each other: one product with
// batch * m rows.
bool RowsFollow(const GemmArgs& g, bool addend) {
  return g.batch > 1 && g.b_batch_stride == 0 && g.a_batch_stride == g.m * g.a_row_stride &&
         g.c_batch_stride == g.m * g.c_row_stride &&
         (!addend || g.d_batch_stride == g.m * g.d_row_stride);
}

// The transposed problem, C^T = B^T A^T.
void Transpose(GemmProblem& p) {
  std::swap(p.m, p.n);
  std::swap(p.a, p.b);
  std::swap(p.a_row, p.b_col);
  std::swap(p.a_col, p.b_row);
  std::swap(p.c_row, p.c_col);
  std::swap(p.d_row, p.d_col);
  p.transposed = !p.transposed;
}

void Multiply(GemmProblem p, bool parallel) {
  const bool skinny_columns = p.n <= kMaxSkinnyRows && p.m > kMaxSkinnyRows;
  const bool column_major = p.c_row == 1 && p.c_col != 1 && p.m > 1 && p.n > 1;
  if (skinny_columns || (column_major && p.m > kMaxSkinnyRows)) Transpose(p);
  if (p.m <= kMaxSkinnyRows && MultiplySkinny(p, parallel)) return;
  MultiplyBlocked(p, parallel);
}

}  // namespace

const GemmKernels* FindGemmKernels(DType dtype, [[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx512Bf16:
      if (const GemmKernels* found = avx512_bf16::FindGemmKernels(dtype)) return found;
      [[fallthrough]];
    case Isa::kAvx512:
      return avx512::FindGemmKernels(dtype);
    case Isa::kAvx2:
      return avx2::FindGemmKernels(dtype);
    case Isa::kPortable:
      break;
  }
#endif
  return portable::FindGemmKernels(dtype);
}

GemmTarget TargetOf(const GemmProblem& p, int64_t row, int64_t column, int64_t rows,
                    int64_t columns) {
  GemmTarget target{row, column, rows, columns, nullptr, p.c_row, p.c_col};
  if (p.c != nullptr) {
    target.data = p.c + (row * p.c_row + column * p.c_col) * p.element_bytes;
    return target;
  }
  // The rows of C follow each other with their elements.
  target.row_stride = p.transposed ? 1 : columns;
  target.col_stride = p.transposed ? rows : 1;
  target.data = static_cast<char*>(
      GetScratch(Scratch::kResult, static_cast<size_t>(rows * columns * p.element_bytes)));
  return target;
}

void Finished(const GemmProblem& p, const GemmTarget& t) {
  if (p.epilogue == nullptr) return;
  if (p.transposed) {
    (*p.epilogue)({p.first_row + t.column, t.row, t.columns, t.rows, t.data, t.col_stride});
  } else {
    (*p.epilogue)({p.first_row + t.row, t.column, t.rows, t.columns, t.data, t.row_stride});
  }
}

void Gemm(const GemmArgs& caller, Isa isa) {
  GemmArgs args = caller;
  if (args.c == nullptr) {
    args.c_col_stride = 1;
    args.c_row_stride = args.n;
    args.c_batch_stride = args.m * args.n;
  }
  Check(args);
  GemmProblem p{};
  p.kernels = FindGemmKernels(args.dtype, isa);
  if (p.kernels == nullptr) NEURON_THROW(kUnsupported, "gemm: no kernel for ", Name(args.dtype));
  if (args.m == 0 || args.n == 0 || args.batch == 0) return;
  const bool addend = args.beta != 0 && args.d != nullptr;
  int64_t batch = args.batch;
  p.element_bytes = ByteSize(args.dtype);
  p.m = args.m;
  p.n = args.n;
  p.k = args.alpha == 0 ? 0 : args.k;
  if (RowsFollow(args, addend)) p.m *= std::exchange(batch, 1);
  p.a = static_cast<const char*>(args.a);
  p.a_row = args.a_row_stride;
  p.a_col = args.a_col_stride;
  p.b = static_cast<const char*>(args.b);
  p.b_row = args.b_row_stride;
  p.b_col = args.b_col_stride;
  p.c = static_cast<char*>(args.c);
  p.c_row = args.c_row_stride;
  p.c_col = args.c_col_stride;
  p.d = addend ? static_cast<const char*>(args.d) : nullptr;
  p.d_row = args.d_row_stride;
  p.d_col = args.d_col_stride;
  p.alpha = args.alpha;
  p.beta = args.beta;
  p.epilogue = args.epilogue;

  const auto item = [&](int64_t i, bool parallel) {
    GemmProblem q = p;
    q.a += i * args.a_batch_stride * p.element_bytes;
    q.b += i * args.b_batch_stride * p.element_bytes;
    if (q.c != nullptr) q.c += i * args.c_batch_stride * p.element_bytes;
    q.first_row = i * args.m;
    if (addend) q.d += i * args.d_batch_stride * p.element_bytes;
    Multiply(q, parallel);
  };
  const int threads = ThreadPool::Get().size();
  const double work =
      static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const bool parallel = threads > 1 && work * static_cast<double>(batch) >= kParallelWork;
  if (!parallel || batch < 2 * threads) {
    const bool inside = parallel && work >= kParallelWork;
    for (int64_t i = 0; i < batch; ++i) item(i, inside);
    return;
  }
  // Several runs of items per thread, each worth its hand-out.
  const auto worth = static_cast<int64_t>(kParallelWork / 4 / std::max(work, 1.0)) + 1;
  const int64_t run = std::clamp<int64_t>(worth, 1, std::max<int64_t>(1, batch / (2 * threads)));
  ThreadPool::Get().ParallelFor((batch + run - 1) / run, [&](int64_t task) {
    for (int64_t i = task * run; i < std::min(batch, (task + 1) * run); ++i) item(i, false);
  });
}

}  // namespace neuron::kernels
