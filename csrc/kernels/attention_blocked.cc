// Attention for many queries: per block of queries, stream over blocks of keys.
#include <algorithm>
#include <limits>

#include "kernels/attention_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kQueryPanels =
    4;  // of a block: its scores, queries and results stay in the L2 cache
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kSlack = 64;  // bytes that the last vector of a panel may overrun
constexpr int64_t kMaxQueries = kQueryPanels * kMaxTileRows;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

class Group {
 public:
  Group(const AttentionProblem& problem, int64_t batch, int64_t kv_head)
      : problem_(problem),
        args_(problem.args),
        gemm_(*problem.gemm),
        batch_(batch),
        kv_head_(kv_head),
        nr_(gemm_.nr()) {
    key_panel_bytes_ = RoundUp(args_.head_dim, gemm_.k_unit) * nr_ * gemm_.packed_bytes;
    value_panel_bytes_ = RoundUp(args_.kv_len, gemm_.k_unit) * nr_ * gemm_.packed_bytes;
    key_panels_ = CeilDiv(args_.kv_len, nr_);
    value_panels_ = CeilDiv(args_.v_dim, nr_);
    blocks_ = CeilDiv(args_.q_len, kQueryPanels * gemm_.max_rows);
    queries_ = CeilDiv(args_.q_len, blocks_);
    height_ = CeilDiv(queries_, CeilDiv(queries_, gemm_.max_rows));
    query_panels_ = CeilDiv(queries_, height_);
  }

  void Attend(bool parallel) {
    const auto bytes = static_cast<size_t>(key_panels_ * key_panel_bytes_ +
                                           value_panels_ * value_panel_bytes_ + kSlack);
    keys_ = static_cast<char*>(GetScratch(Scratch::kShared, bytes));
    values_ = keys_ + key_panels_ * key_panel_bytes_;
    Run(key_panels_ + value_panels_, parallel, [&](int64_t i) {
      if (i < key_panels_) {
        PackKeys(i);
      } else {
        PackValues(i - key_panels_);
      }
    });
    const int64_t first_head = kv_head_ * problem_.heads_per_group();
    Run(problem_.heads_per_group() * blocks_, parallel, [&](int64_t i) {
      // Under a causal mask later blocks have more to do: they start first.
      AttendBlock(first_head + i / blocks_, blocks_ - 1 - i % blocks_);
    });
  }

 private:
  static int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

  static void Run(int64_t tasks, bool parallel, FunctionRef<void(int64_t)> fn) {
    if (parallel) return ThreadPool::Get().ParallelFor(tasks, fn);
    for (int64_t i = 0; i < tasks; ++i) fn(i);
  }

  const char* Offset(const void* data, int64_t elements) const {
    return static_cast<const char*>(data) + elements * problem_.element_bytes();
  }

  void PackKeys(int64_t panel) const {
    const auto& s = args_.k_strides;
    PackArgs pack{};
    pack.source = Offset(args_.k, batch_ * s[0] + kv_head_ * s[1] + panel * nr_ * s[2]);
    pack.stride = s[2];
    pack.k_stride = s[3];
    pack.k = args_.head_dim;
    pack.count = static_cast<int>(std::min<int64_t>(nr_, args_.kv_len - panel * nr_));
    pack.width = nr_;
    pack.panel = keys_ + panel * key_panel_bytes_;
    gemm_.pack(pack);
  }

  void PackValues(int64_t panel) const {
    const auto& s = args_.v_strides;
    PackArgs pack{};
    pack.source = Offset(args_.v, batch_ * s[0] + kv_head_ * s[1] + panel * nr_ * s[3]);
    pack.stride = s[3];
    pack.k_stride = s[2];
    pack.k = args_.kv_len;
    pack.count = static_cast<int>(std::min<int64_t>(nr_, args_.v_dim - panel * nr_));
    pack.width = nr_;
    pack.panel = values_ + panel * value_panel_bytes_;
    gemm_.pack(pack);
  }

  void PackQueries(int64_t head, int64_t query, int64_t rows, char* to) const {
    const auto& s = args_.q_strides;
    const int64_t bytes = QueryPanelBytes();
    for (int64_t i = 0; i * height_ < rows; ++i) {
      PackArgs pack{};
      pack.source = Offset(args_.q, batch_ * s[0] + head * s[1] + (query + i * height_) * s[2]);
      pack.stride = s[2];
      pack.k_stride = s[3];
      pack.k = args_.head_dim;
      pack.count = static_cast<int>(std::min(height_, rows - i * height_));
      pack.width = static_cast<int>(height_);
      pack.panel = to + i * bytes;
      gemm_.pack(pack);
    }
  }

  int64_t QueryPanelBytes() const {
    return RoundUp(args_.head_dim, gemm_.k_unit) * height_ * gemm_.packed_bytes;
  }

  void AttendBlock(int64_t head, int64_t block) const {
    const int64_t query = block * queries_;
    const int64_t rows = std::min(queries_, args_.q_len - query);
    if (rows <= 0) return;
    const int64_t padded = query_panels_ * height_;
    const int64_t out_stride = value_panels_ * nr_;
    const int64_t query_bytes = RoundUp(query_panels_ * QueryPanelBytes(), kSlack);
    char* own = static_cast<char*>(GetScratch(
        Scratch::kOwn,
        static_cast<size_t>(
            query_bytes + padded * (kKeyBlock + out_stride) * static_cast<int64_t>(sizeof(float)) +
            kSlack)));
    float* scores = reinterpret_cast<float*>(own + query_bytes);
    float* sums = scores + padded * kKeyBlock;
    float max[kMaxQueries], total[kMaxQueries], correction[kMaxQueries];
    std::fill_n(max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(total, rows, 0.0f);
    PackQueries(head, query, rows, own);
    const int64_t limit = args_.causal ? std::min(args_.kv_len, query + rows) : args_.kv_len;
    for (int64_t key = 0; key < limit; key += kKeyBlock) {
      const int64_t keys = std::min(kKeyBlock, limit - key);
      Score(own, rows, key, keys, scores);
      SoftmaxArgs softmax = DescribeSoftmax(problem_, batch_, head, query, key, rows, keys);
      softmax.scores = scores;
      softmax.stride = kKeyBlock;
      softmax.max = max;
      softmax.sum = total;
      softmax.correction = correction;
      problem_.softmax.softmax(softmax);
      for (int64_t i = 0; key > 0 && i < rows; ++i) {
        if (correction[i] != 1)
          problem_.softmax.scale(sums + i * out_stride, out_stride, correction[i]);
      }
      AddValues(scores, rows, key, keys, key == 0, sums, out_stride);
    }
    if (limit == 0) std::fill_n(sums, rows * out_stride, 0.0f);
    StoreAttention(problem_, batch_, head, query, rows, sums, out_stride, max, total);
  }

  // scores[rows][kKeyBlock] = q . k
  void Score(const char* queries, int64_t rows, int64_t key, int64_t keys, float* scores) const {
    const int64_t units = CeilDiv(args_.head_dim, gemm_.k_unit);
    const int64_t step = static_cast<int64_t>(nr_) * gemm_.k_unit * gemm_.packed_bytes;
    for (int64_t j = 0; j < keys; j += nr_) {
      const MicroKernel kernel = Kernel(gemm_.packed, keys - j);
      for (int64_t i = 0; i < rows; i += height_) {
        kernel(units, queries + i / height_ * QueryPanelBytes(), 0,
               keys_ + (key + j) / nr_ * key_panel_bytes_, step, nullptr, 0,
               scores + i * kKeyBlock + j, kKeyBlock);
      }
    }
  }

  // sums[rows][stride] (+)= probabilities * v
  void AddValues(const float* probabilities, int64_t rows, int64_t key, int64_t keys, bool first,
                 float* sums, int64_t stride) const {
    const int64_t units = CeilDiv(keys, gemm_.k_unit);
    const int64_t step = static_cast<int64_t>(nr_) * gemm_.k_unit * gemm_.packed_bytes;
    for (int64_t j = 0; j < args_.v_dim; j += nr_) {
      const MicroKernel kernel = Kernel(gemm_.unpacked, args_.v_dim - j);
      const char* values = values_ + j / nr_ * value_panel_bytes_ + key / gemm_.k_unit * step;
      for (int64_t i = 0; i < rows; i += height_) {
        float* tile = sums + i * stride + j;
        kernel(units, probabilities + i * kKeyBlock,
               kKeyBlock * static_cast<int64_t>(sizeof(float)), values, step,
               first ? nullptr : tile, stride, tile, stride);
      }
    }
  }

  MicroKernel Kernel(const MicroKernel (&table)[kMaxTileVectors][kMaxTileRows],
                     int64_t columns) const {
    const int vectors = columns <= gemm_.vector_columns ? 1 : gemm_.vectors;
    return table[vectors - 1][height_ - 1];
  }

  const AttentionProblem& problem_;
  const AttentionArgs& args_;
  const GemmKernels& gemm_;
  const int64_t batch_, kv_head_;
  const int nr_;
  int64_t key_panel_bytes_, value_panel_bytes_, key_panels_, value_panels_;
  int64_t blocks_, queries_;       // blocks of queries per head, and queries of one
  int64_t height_, query_panels_;  // queries of a panel, and panels of a block
  char* keys_ = nullptr;
  char* values_ = nullptr;
};

}  // namespace

void AttendGroup(const AttentionProblem& problem, int64_t batch, int64_t kv_head, bool parallel) {
  Group(problem, batch, kv_head).Attend(parallel);
}

}  // namespace neuron::kernels
