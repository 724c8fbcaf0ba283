#include "kernels/transpose.h"

#include <algorithm>
#include <cstring>

#include "kernels/thread_pool.h"
#include "kernels/transpose_kernels.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kParallelBytes = 256 << 10;  // below, waking a thread costs more than it saves
constexpr int64_t kBlock = 128;  // rows and columns of a block: both sides stay in the L2 cache
constexpr int64_t kMinRunBytes = 16;  // shorter runs are not worth a call of memcpy
constexpr int64_t kMinTile = 4;

TransposeKernel FindKernel(int64_t element_bytes, [[maybe_unused]] Isa isa) {
  const TransposeKernels* kernels = &portable::GetTransposeKernels();
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) kernels = &avx512::GetTransposeKernels();
  if (isa == Isa::kAvx2) kernels = &avx2::GetTransposeKernels();
#endif
  switch (element_bytes) {
    case 1:
      return kernels->bytes1;
    case 2:
      return kernels->bytes2;
    case 4:
      return kernels->bytes4;
    case 8:
      return kernels->bytes8;
    default:
      NEURON_THROW(kInvalidArgument, "transpose: no kernel for elements of ", element_bytes,
                   " bytes");
  }
}

struct Dim {
  int64_t size, source, out;
};

// The problem with as few dimensions as possible: sizes of 1 dropped, neighbours joined.
struct Plan {
  Dim dims[kMaxPermuteRank];
  int rank = 0;
  int along_source = -1, along_out = -1;  // dimensions of stride 1

  explicit Plan(const PermuteArgs& args) {
    for (int i = 0; i < args.rank; ++i) {
      if (args.dims[i] == 1) continue;
      dims[rank++] = {args.dims[i], args.source_strides[i], args.out_strides[i]};
    }
    // Largest steps of `out` first: it is written in order.
    std::stable_sort(dims, dims + rank, [](const Dim& a, const Dim& b) { return a.out > b.out; });
    for (int i = rank - 2; i >= 0; --i) {
      const Dim inner = dims[i + 1];
      if (dims[i].source != inner.source * inner.size || dims[i].out != inner.out * inner.size)
        continue;
      dims[i] = {dims[i].size * inner.size, inner.source, inner.out};
      std::copy(dims + i + 2, dims + rank, dims + i + 1);
      --rank;
    }
    for (int i = 0; i < rank; ++i) {
      if (dims[i].source == 1) along_source = i;
      if (dims[i].out == 1) along_out = i;
    }
  }

  bool Fits(int64_t element_bytes) const {
    if (along_source < 0 || along_out < 0) return false;
    if (along_source == along_out) return dims[along_out].size * element_bytes >= kMinRunBytes;
    return std::min(dims[along_source].size, dims[along_out].size) >= kMinTile;
  }
};

void Run(int64_t tasks, bool parallel, FunctionRef<void(int64_t)> fn) {
  if (parallel) return ThreadPool::Get().ParallelFor(tasks, fn);
  for (int64_t i = 0; i < tasks; ++i) fn(i);
}

// Offsets, in elements, of item `index` of the dimensions that are neither `a` nor `b`.
void Locate(const Plan& plan, int a, int b, int64_t index, int64_t& source, int64_t& out) {
  source = out = 0;
  for (int d = plan.rank - 1; d >= 0; --d) {
    if (d == a || d == b) continue;
    const int64_t at = index % plan.dims[d].size;
    index /= plan.dims[d].size;
    source += at * plan.dims[d].source;
    out += at * plan.dims[d].out;
  }
}

void CopyRuns(const Plan& plan, const PermuteArgs& args, int64_t runs, bool parallel) {
  const int64_t bytes = plan.dims[plan.along_out].size * args.element_bytes;
  const int64_t together = std::max<int64_t>(1, (64 << 10) / bytes);
  Run((runs + together - 1) / together, parallel, [&](int64_t task) {
    for (int64_t i = task * together; i < std::min(runs, (task + 1) * together); ++i) {
      int64_t source = 0, out = 0;
      Locate(plan, plan.along_out, plan.along_out, i, source, out);
      std::memcpy(static_cast<char*>(args.out) + out * args.element_bytes,
                  static_cast<const char*>(args.source) + source * args.element_bytes,
                  static_cast<size_t>(bytes));
    }
  });
}

void TransposeAll(const Plan& plan, const PermuteArgs& args, int64_t planes, bool parallel,
                  TransposeKernel kernel) {
  const Dim& rows = plan.dims[plan.along_out];  // of the source: contiguous in out
  const Dim& cols = plan.dims[plan.along_source];
  const int64_t row_blocks = (rows.size + kBlock - 1) / kBlock;
  const int64_t col_blocks = (cols.size + kBlock - 1) / kBlock;
  const int64_t blocks = row_blocks * col_blocks;
  const int64_t block_bytes =
      std::min(rows.size, kBlock) * std::min(cols.size, kBlock) * args.element_bytes;
  const int64_t together = std::max<int64_t>(1, (64 << 10) / block_bytes);
  const int64_t all = planes * blocks;
  Run((all + together - 1) / together, parallel, [&](int64_t task) {
    for (int64_t i = task * together; i < std::min(all, (task + 1) * together); ++i) {
      int64_t source = 0, out = 0;
      Locate(plan, plan.along_out, plan.along_source, i / blocks, source, out);
      const int64_t row = i % blocks % row_blocks * kBlock, col = i % blocks / row_blocks * kBlock;
      source += row * rows.source + col;
      out += row + col * cols.out;
      kernel(std::min(kBlock, rows.size - row), std::min(kBlock, cols.size - col),
             static_cast<const char*>(args.source) + source * args.element_bytes, rows.source,
             static_cast<char*>(args.out) + out * args.element_bytes, cols.out);
    }
  });
}

}  // namespace

bool CanPermute(const PermuteArgs& args) {
  const bool known = args.element_bytes == 1 || args.element_bytes == 2 ||
                     args.element_bytes == 4 || args.element_bytes == 8;
  if (!known || args.rank < 0 || args.rank > kMaxPermuteRank) return false;
  for (int i = 0; i < args.rank; ++i) {
    if (args.dims[i] <= 0 || args.source_strides[i] < 0 || args.out_strides[i] < 0) return false;
  }
  return Plan(args).Fits(args.element_bytes);
}

void Permute(const PermuteArgs& args, Isa isa) {
  if (!CanPermute(args)) NEURON_THROW(kInvalidArgument, "permute: no kernel for these strides");
  const Plan plan(args);
  int64_t elements = 1;
  for (int i = 0; i < plan.rank; ++i) elements *= plan.dims[i].size;
  const bool parallel =
      elements * args.element_bytes >= kParallelBytes && ThreadPool::Get().size() > 1;
  if (plan.along_source == plan.along_out)
    return CopyRuns(plan, args, elements / plan.dims[plan.along_out].size, parallel);
  const int64_t plane = plan.dims[plan.along_out].size * plan.dims[plan.along_source].size;
  TransposeAll(plan, args, elements / plane, parallel, FindKernel(args.element_bytes, isa));
}

void Transpose(int64_t element_bytes, int64_t rows, int64_t cols, const void* source,
               int64_t source_stride, void* out, int64_t out_stride, Isa isa) {
  FindKernel(element_bytes, isa)(rows, cols, source, source_stride, out, out_stride);
}

}  // namespace neuron::kernels
