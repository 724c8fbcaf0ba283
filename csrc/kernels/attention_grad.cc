// Attention's gradient: per group of heads, blocks of keys in the outer loop, blocks of queries in
// the inner one. Sums for dk and dv of a range of keys and dq of a head stay with the task.
#include <algorithm>
#include <cstdint>
#include <memory>

#include "kernels/attention_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kKeyBlock = 128;    // a multiple of every panel's width
constexpr int64_t kQueryTarget = 96;  // queries of a block, about
constexpr int64_t kSlack = 64;        // bytes that the last vector of a panel may overrun
// Fewer groups than this are cut into ranges of keys. No number of threads: results follow it.
constexpr int64_t kWantedTasks = 8;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

void Run(int64_t tasks, bool parallel, FunctionRef<void(int64_t)> fn) {
  if (parallel) return ThreadPool::Get().ParallelFor(tasks, fn);
  for (int64_t i = 0; i < tasks; ++i) fn(i);
}

// Sizes that all tasks share.
struct Shape {
  Shape(const AttentionProblem& problem, bool cut) : args(problem.args), gemm(*problem.gemm) {
    nr = gemm.nr();
    const int64_t panels = std::max<int64_t>(1, kQueryTarget / gemm.max_rows);
    query_block = RoundUp(panels * gemm.max_rows, 2);  // whole pairs
    q_len = RoundUp(args.q_len, gemm.k_unit);
    e_len = RoundUp(args.head_dim, gemm.k_unit);
    v_len = RoundUp(args.v_dim, gemm.k_unit);
    e_width = RoundUp(args.head_dim, nr);
    v_width = RoundUp(args.v_dim, nr);
    const int64_t groups = args.batch * args.kv_heads;
    const int64_t blocks = CeilDiv(args.kv_len, kKeyBlock);
    ranges =
        cut ? std::clamp<int64_t>(CeilDiv(kWantedTasks, groups), 1, std::max<int64_t>(1, blocks))
            : 1;
    range_blocks = CeilDiv(blocks, ranges);
  }

  const AttentionArgs& args;
  const GemmKernels& gemm;
  int64_t nr, query_block;
  int64_t q_len, e_len, v_len;  // along which products sum, in whole units
  int64_t e_width, v_width;     // rows of sums
  int64_t ranges, range_blocks;
};

// A task's memory, handed out in order.
class Arena {
 public:
  template <typename T>
  void Add(T*& pointer, int64_t bytes) {
    parts_[count_++] = {reinterpret_cast<void**>(&pointer), total_};
    total_ += RoundUp(bytes, kSlack) + kSlack;
  }
  void Place() {
    char* base = static_cast<char*>(GetScratch(Scratch::kOwn, static_cast<size_t>(total_)));
    for (int i = 0; i < count_; ++i) *parts_[i].pointer = base + parts_[i].offset;
  }

 private:
  struct Part {
    void** pointer;
    int64_t offset;
  };
  Part parts_[16];
  int count_ = 0;
  int64_t total_ = 0;
};

// One group of heads and one range of keys.
class GradTask {
 public:
  GradTask(const Shape& shape, const AttentionProblem& problem, const GemmKernels& probabilities,
           const AttentionGradArgs& grads, int64_t batch, int64_t kv_head, int64_t range)
      : s_(shape),
        problem_(problem),
        args_(problem.args),
        gemm_(*problem.gemm),
        probabilities_(probabilities),
        grads_(grads),
        batch_(batch),
        kv_head_(kv_head),
        first_key_(range * shape.range_blocks * kKeyBlock),
        keys_(std::clamp<int64_t>(args_.kv_len - first_key_, 0, shape.range_blocks * kKeyBlock)) {}

  // dq_sums(head): where to leave the sums of dq, [q_len][e_width]; null: stores dq itself.
  void Compute(FunctionRef<float*(int64_t)> dq_sums) {
    Allocate();
    std::fill_n(dk_, keys_ * s_.e_width, 0.0f);
    std::fill_n(dv_, keys_ * s_.v_width, 0.0f);
    const int64_t group = problem_.heads_per_group();
    for (int64_t head = kv_head_ * group; head < (kv_head_ + 1) * group; ++head) {
      float* elsewhere = dq_sums(head);
      dq_ = elsewhere != nullptr ? elsewhere : dq_own_;
      std::fill_n(dq_, args_.q_len * s_.e_width, 0.0f);
      AddHead(head);
      if (elsewhere == nullptr) {
        StoreRows(grads_.dq, grads_.dq_strides, head, 0, args_.q_len, args_.head_dim, dq_,
                  s_.e_width, args_.scale);
      }
    }
    StoreRows(grads_.dk, grads_.dk_strides, kv_head_, first_key_, keys_, args_.head_dim, dk_,
              s_.e_width, args_.scale);
    StoreRows(grads_.dv, grads_.dv_strides, kv_head_, first_key_, keys_, args_.v_dim, dv_,
              s_.v_width, KeepScale(args_));
  }

  void StoreRows(void* to, const int64_t (&strides)[4], int64_t head, int64_t first, int64_t rows,
                 int64_t cols, const float* sums, int64_t stride, double factor) const {
    if (to == nullptr || rows == 0) return;
    StoreArgs store{};
    store.sums = sums;
    store.sums_stride = stride;
    store.rows = static_cast<int>(rows);
    store.cols = static_cast<int>(cols);
    store.c =
        static_cast<char*>(to) +
        (batch_ * strides[0] + head * strides[1] + first * strides[2]) * problem_.element_bytes();
    store.c_row_stride = strides[2];
    store.c_col_stride = strides[3];
    store.alpha = factor;
    gemm_.store(store);
  }

 private:
  void Allocate() {
    const int64_t packed = gemm_.packed_bytes, sum = sizeof(float);
    const int64_t queries = args_.q_len;
    Arena arena;
    arena.Add(q_rows_, queries * s_.e_len * packed);
    arena.Add(grad_rows_, queries * s_.v_len * packed);
    arena.Add(q_columns_, s_.q_len * s_.e_width * packed);
    arena.Add(grad_columns_, s_.q_len * s_.v_width * packed);
    arena.Add(keys_across_, kKeyBlock * s_.e_len * packed);
    arena.Add(values_across_, kKeyBlock * s_.v_len * packed);
    arena.Add(keys_along_, kKeyBlock * s_.e_width * packed);
    arena.Add(turned_, RoundUp(s_.query_block, 2) * (kKeyBlock + gemm_.max_rows) * packed);
    arena.Add(scores_, s_.query_block * kKeyBlock * sum);
    arena.Add(score_grads_, s_.query_block * kKeyBlock * sum);
    arena.Add(dk_, keys_ * s_.e_width * sum);
    arena.Add(dv_, keys_ * s_.v_width * sum);
    arena.Add(dq_own_, s_.ranges > 1 ? 0 : queries * s_.e_width * sum);
    arena.Add(lse_, queries * sum);
    arena.Add(delta_, queries * sum);
    arena.Place();
  }

  const char* Address(const void* data, const int64_t (&s)[4], int64_t head, int64_t row) const {
    return static_cast<const char*>(data) +
           (batch_ * s[0] + head * s[1] + row * s[2]) * problem_.element_bytes();
  }

  // Rows of a tensor as the left operand: panels of equal height for each block of queries.
  void PackRows(const char* from, int64_t row_stride, int64_t k_stride, int64_t k, int64_t k_len,
                char* to) const {
    for (int64_t block = 0; block < args_.q_len; block += s_.query_block) {
      const int64_t rows = std::min(s_.query_block, args_.q_len - block);
      PackPanels(gemm_, from + block * row_stride * problem_.element_bytes(), row_stride, k_stride,
                 rows, k, Height(rows), to + block * k_len * gemm_.packed_bytes, k_len,
                 problem_.element_bytes());
    }
  }

  int64_t Height(int64_t rows) const { return CeilDiv(rows, CeilDiv(rows, gemm_.max_rows)); }

  // `count` rows or columns into panels of `width`; panels wider than what is left are padded only
  // where `width` is that of the right operand.
  void PackPanels(const GemmKernels& packer, const char* from, int64_t stride, int64_t k_stride,
                  int64_t count, int64_t k, int64_t width, char* to, int64_t k_len,
                  int64_t element_bytes) const {
    for (int64_t i = 0; i < count; i += width) {
      PackArgs pack{};
      pack.source = from + i * stride * element_bytes;
      pack.stride = stride;
      pack.k_stride = k_stride;
      pack.k = k;
      pack.count = static_cast<int>(std::min(width, count - i));
      pack.width = width == s_.nr ? static_cast<int>(width) : pack.count;
      pack.panel = to + i * k_len * packer.packed_bytes;
      packer.pack(pack);
    }
  }

  void AddHead(int64_t head) {
    const auto& q = args_.q_strides;
    const auto& g = grads_.grad_strides;
    const char* queries = Address(args_.q, q, head, 0);
    const char* grads = Address(grads_.grad, g, head, 0);
    PackRows(queries, q[2], q[3], args_.head_dim, s_.e_len, q_rows_);
    PackRows(grads, g[2], g[3], args_.v_dim, s_.v_len, grad_rows_);
    const int64_t bytes = problem_.element_bytes();
    PackPanels(gemm_, queries, q[3], q[2], args_.head_dim, args_.q_len, s_.nr, q_columns_, s_.q_len,
               bytes);
    PackPanels(gemm_, grads, g[3], g[2], args_.v_dim, args_.q_len, s_.nr, grad_columns_, s_.q_len,
               bytes);
    for (int64_t i = 0; i < args_.q_len; ++i) {
      lse_[i] = args_.lse[batch_ * args_.lse_strides[0] + head * args_.lse_strides[1] +
                          i * args_.lse_strides[2]];
    }
    ComputeDelta(head);
    for (int64_t key = 0; key < keys_; key += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, keys_ - key);
      PackKeys(first_key_ + key, count);
      const int64_t start = args_.causal ? (first_key_ + key) / s_.query_block * s_.query_block : 0;
      for (int64_t query = start; query < args_.q_len; query += s_.query_block) {
        AddBlock(head, query, std::min(s_.query_block, args_.q_len - query), key, count);
      }
    }
  }

  // delta[i] = sum_e out[i,e] * grad[i,e]
  void ComputeDelta(int64_t head) {
    float* const wide = scores_;  // not in use yet
    const int64_t room = s_.query_block * kKeyBlock / 2;
    for (int64_t i = 0; i < args_.q_len; ++i) {
      const char* out = Address(args_.out, args_.out_strides, head, i);
      const char* grad = Address(grads_.grad, grads_.grad_strides, head, i);
      float sum = 0;
      for (int64_t e = 0; e < args_.v_dim; e += room) {
        const int64_t n = std::min(room, args_.v_dim - e);
        const int64_t bytes = problem_.element_bytes();
        gemm_.widen(out + e * args_.out_strides[3] * bytes, args_.out_strides[3], n, wide);
        gemm_.widen(grad + e * grads_.grad_strides[3] * bytes, grads_.grad_strides[3], n,
                    wide + room);
        float lanes[8] = {};
        int64_t j = 0;
        for (; j + 8 <= n; j += 8) {
          for (int64_t lane = 0; lane < 8; ++lane)
            lanes[lane] += wide[j + lane] * wide[room + j + lane];
        }
        for (; j < n; ++j) sum += wide[j] * wide[room + j];
        for (const float lane : lanes) sum += lane;
      }
      delta_[i] = sum;
    }
  }

  void PackKeys(int64_t key, int64_t count) const {
    const auto& k = args_.k_strides;
    const auto& v = args_.v_strides;
    const char* keys = Address(args_.k, k, kv_head_, key);
    const char* values = Address(args_.v, v, kv_head_, key);
    const int64_t bytes = problem_.element_bytes();
    PackPanels(gemm_, keys, k[2], k[3], count, args_.head_dim, s_.nr, keys_across_, s_.e_len,
               bytes);
    PackPanels(gemm_, values, v[2], v[3], count, args_.v_dim, s_.nr, values_across_, s_.v_len,
               bytes);
    PackPanels(gemm_, keys, k[3], k[2], args_.head_dim, count, s_.nr, keys_along_, kKeyBlock,
               bytes);
  }

  void AddBlock(int64_t head, int64_t query, int64_t rows, int64_t key, int64_t keys) const {
    const int64_t packed = gemm_.packed_bytes;
    const int64_t height = Height(rows);
    Multiply(q_rows_ + query * s_.e_len * packed, rows, height, s_.e_len, keys_across_, s_.e_len, 0,
             keys, nullptr, scores_, kKeyBlock);
    Multiply(grad_rows_ + query * s_.v_len * packed, rows, height, s_.v_len, values_across_,
             s_.v_len, 0, keys, nullptr, score_grads_, kKeyBlock);
    GradientArgs gradient{};
    gradient.block = DescribeSoftmax(problem_, batch_, head, query, first_key_ + key, rows, keys);
    gradient.block.scores = scores_;
    gradient.block.stride = kKeyBlock;
    gradient.grads = score_grads_;
    gradient.lse = lse_ + query;
    gradient.delta = delta_ + query;
    gradient.keep_scale = static_cast<float>(KeepScale(args_));
    problem_.softmax.gradient(gradient);
    if (grads_.dv != nullptr)
      AddTurned(scores_, rows, keys, grad_columns_, query, args_.v_dim, dv_ + key * s_.v_width,
                s_.v_width);
    if (grads_.dk != nullptr)
      AddTurned(score_grads_, rows, keys, q_columns_, query, args_.head_dim, dk_ + key * s_.e_width,
                s_.e_width);
    if (grads_.dq != nullptr) {
      const int64_t row_bytes = kKeyBlock * static_cast<int64_t>(sizeof(float));
      float* sums = dq_ + query * s_.e_width;
      const int64_t units = CeilDiv(keys, gemm_.k_unit);
      for (int64_t j = 0; j < args_.head_dim; j += s_.nr) {
        for (int64_t i = 0; i < rows; i += height) {
          const int64_t tall = std::min(height, rows - i);
          float* tile = sums + i * s_.e_width + j;
          Kernel(gemm_.unpacked, args_.head_dim - j, tall)(
              units, score_grads_ + i * kKeyBlock, row_bytes, keys_along_ + j * kKeyBlock * packed,
              UnitBytes(), tile, s_.e_width, tile, s_.e_width);
        }
      }
    }
  }

  // sums[keys][stride] += block^T * columns, whose rows from `query` on the block's rows are.
  void AddTurned(const float* block, int64_t rows, int64_t keys, const char* columns, int64_t query,
                 int64_t width, float* sums, int64_t stride) const {
    const int64_t element = probabilities_.packed_bytes;
    const int64_t k_stride = kKeyBlock * static_cast<int64_t>(sizeof(float)) / element;
    const int64_t k_len = RoundUp(rows, gemm_.k_unit);
    const int64_t height = Height(keys);
    PackPanels(probabilities_, reinterpret_cast<const char*>(block), 1, k_stride, keys, rows,
               height, turned_, k_len, element);
    Multiply(turned_, keys, height, k_len, columns, s_.q_len, query, width, sums, sums, stride);
  }

  int64_t UnitBytes() const { return s_.nr * gemm_.k_unit * gemm_.packed_bytes; }

  // out[rows][cols] = in + a * b, where b's panels are b_len long and used from `b_start` on.
  void Multiply(const char* a, int64_t rows, int64_t height, int64_t k_len, const char* b,
                int64_t b_len, int64_t b_start, int64_t cols, const float* in, float* out,
                int64_t stride) const {
    const int64_t packed = gemm_.packed_bytes;
    const int64_t units = k_len / gemm_.k_unit;
    for (int64_t j = 0; j < cols; j += s_.nr) {
      const char* panel = b + (j * b_len + b_start * s_.nr) * packed;
      for (int64_t i = 0; i < rows; i += height) {
        const int64_t tall = std::min(height, rows - i);
        const int64_t at = i * stride + j;
        Kernel(gemm_.packed, cols - j, tall)(units, a + i * k_len * packed, 0, panel, UnitBytes(),
                                             in == nullptr ? nullptr : in + at, stride, out + at,
                                             stride);
      }
    }
  }

  MicroKernel Kernel(const MicroKernel (&table)[kMaxTileVectors][kMaxTileRows], int64_t columns,
                     int64_t rows) const {
    const int vectors = columns <= gemm_.vector_columns ? 1 : gemm_.vectors;
    return table[vectors - 1][rows - 1];
  }

  const Shape& s_;
  const AttentionProblem& problem_;
  const AttentionArgs& args_;
  const GemmKernels& gemm_;
  const GemmKernels& probabilities_;
  const AttentionGradArgs& grads_;
  const int64_t batch_, kv_head_, first_key_, keys_;
  char *q_rows_, *grad_rows_;           // left operands, [query block][panel][feature][query]
  char *q_columns_, *grad_columns_;     // right operands, [panel][query][feature]
  char *keys_across_, *values_across_;  // of the block: right operands, [panel][feature][key]
  char* keys_along_;                    // right operand, [panel][key][feature]
  char* turned_;                        // left operand of a transposed block
  float *scores_, *score_grads_;        // [query][kKeyBlock]
  float *dk_, *dv_, *dq_own_, *dq_ = nullptr;
  float *lse_, *delta_;
};

}  // namespace

void AttentionGradBlocked(const AttentionProblem& problem, const GemmKernels& probabilities,
                          const AttentionGradArgs& args, bool parallel) {
  const AttentionArgs& forward = problem.args;
  if (forward.lse == nullptr && forward.q_len > 0)
    NEURON_THROW(kInvalidArgument, "attention_grad: no log-sum-exp");
  const int64_t groups = forward.batch * forward.kv_heads;
  const Shape shape(problem, groups < kWantedTasks);
  const int64_t head_sums = forward.q_len * shape.e_width;
  std::unique_ptr<float[]> parts;  // [range][batch][head]
  if (shape.ranges > 1) {
    parts = std::make_unique_for_overwrite<float[]>(
        static_cast<size_t>(shape.ranges * forward.batch * forward.heads * head_sums));
  }
  const auto part = [&](int64_t range, int64_t batch, int64_t head) {
    return parts.get() + ((range * forward.batch + batch) * forward.heads + head) * head_sums;
  };
  Run(groups * shape.ranges, parallel, [&](int64_t i) {
    const int64_t range = i % shape.ranges, group = i / shape.ranges;
    const int64_t batch = group / forward.kv_heads;
    GradTask(shape, problem, probabilities, args, batch, group % forward.kv_heads, range)
        .Compute([&](int64_t head) {
          return shape.ranges > 1 ? part(range, batch, head) : static_cast<float*>(nullptr);
        });
  });
  if (shape.ranges == 1) return;
  Run(forward.batch * forward.heads, parallel, [&](int64_t i) {
    const int64_t batch = i / forward.heads, head = i % forward.heads;
    float* sums = part(0, batch, head);
    for (int64_t range = 1; range < shape.ranges; ++range) {
      const float* more = part(range, batch, head);
      for (int64_t j = 0; j < head_sums; ++j) sums[j] += more[j];
    }
    GradTask(shape, problem, probabilities, args, batch, head / problem.heads_per_group(), 0)
        .StoreRows(args.dq, args.dq_strides, head, 0, forward.q_len, forward.head_dim, sums,
                   shape.e_width, forward.scale);
  });
}

}  // namespace neuron::kernels
