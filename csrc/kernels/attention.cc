#include "kernels/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention_kernels.h"
#include "kernels/attention_problem.h"
#include "kernels/thread_pool.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

// Below this many multiplications, waking a thread costs more than it saves.
constexpr double kParallelWork = 5e5;

const AttentionKernels& FindAttentionKernels([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::kAvx512 || isa == Isa::kAvx512Bf16) return avx512::GetAttentionKernels();
  if (isa == Isa::kAvx2) return avx2::GetAttentionKernels();
#endif
  return portable::GetAttentionKernels();
}

void Check(const AttentionArgs& a) {
  if (!IsFloat(a.dtype)) NEURON_THROW(kUnsupported, "attention: no kernel for ", Name(a.dtype));
  if (a.bias != nullptr && a.bias_dtype != DType::kBool && !IsFloat(a.bias_dtype)) {
    NEURON_THROW(kUnsupported, "attention: no kernel for a mask of ", Name(a.bias_dtype));
  }
  for (int64_t size : {a.batch, a.heads, a.kv_heads, a.q_len, a.kv_len, a.head_dim, a.v_dim}) {
    if (size < 0) NEURON_THROW(kInvalidArgument, "attention: negative size ", size);
  }
  if (a.heads > 0 && (a.kv_heads == 0 || a.heads % a.kv_heads != 0)) {
    NEURON_THROW(kInvalidArgument, "attention: ", a.heads, " heads are not a multiple of ",
                 a.kv_heads, " key heads");
  }
  if (!(a.dropout >= 0 && a.dropout <= 1)) {
    NEURON_THROW(kInvalidArgument, "attention: dropout ", a.dropout, " is not in [0, 1]");
  }
}

}  // namespace

int64_t DropoutCounters(int64_t batch, int64_t heads, int64_t q_len, int64_t kv_len) {
  return batch * heads * q_len * ((kv_len + 3) / 4);
}

void Attention(const AttentionArgs& args, Isa isa) {
  Check(args);
  if (args.batch == 0 || args.heads == 0 || args.q_len == 0) return;
  const int64_t groups = args.batch * args.kv_heads;
  const int64_t threads = ThreadPool::Get().size();
  const double work = static_cast<double>(args.batch * args.heads) *
                      static_cast<double>(args.q_len) * static_cast<double>(args.kv_len) *
                      static_cast<double>(args.head_dim + args.v_dim);
  const bool parallel = threads > 1 && work >= kParallelWork;
  // Enough groups of heads: a thread takes a whole group, else the threads share each.
  const bool by_group = parallel && (groups >= 4 * threads || groups % threads == 0);
  const AttentionProblem problem{args, FindGemmKernels(args.dtype, isa), FindAttentionKernels(isa)};
  const auto group = [&](int64_t i) {
    const int64_t b = i / args.kv_heads;
    const int64_t kv_head = i % args.kv_heads;
    if (args.dtype == DType::kF64) {
      AttendGroupF64(problem, b, kv_head, parallel && !by_group);
    } else if (!AttendGroupInPlace(problem, b, kv_head)) {
      AttendGroup(problem, b, kv_head, parallel && !by_group);
    }
  };
  if (by_group) {
    ThreadPool::Get().ParallelFor(groups, group);
  } else {
    for (int64_t i = 0; i < groups; ++i) group(i);
  }
}

void AttentionGrad(const AttentionGradArgs& args, Isa isa) {
  const AttentionArgs& forward = args.forward;
  Check(forward);
  if (forward.batch == 0 || forward.heads == 0) return;
  const AttentionProblem problem{forward, FindGemmKernels(forward.dtype, isa),
                                 FindAttentionKernels(isa)};
  const double work = static_cast<double>(forward.batch * forward.heads) *
                      static_cast<double>(forward.q_len) * static_cast<double>(forward.kv_len) *
                      static_cast<double>(forward.head_dim + forward.v_dim);
  const bool parallel = ThreadPool::Get().size() > 1 && 2.5 * work >= kParallelWork;
  if (forward.dtype == DType::kF64) return AttentionGradF64(args, parallel);
  // The products of the probabilities are packed from f32, or from bf16 where pairs are multiplied.
  const GemmKernels* probabilities =
      problem.gemm->packed_bytes == 2 ? problem.gemm : FindGemmKernels(DType::kF32, isa);
  AttentionGradBlocked(problem, *probabilities, args, parallel);
}

}  // namespace neuron::kernels
