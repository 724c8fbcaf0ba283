// The product by packed panels. One operand (the smaller one) is packed whole and shared by all
// tasks; each task packs a run of panels of the other and multiplies them with the shared ones,
// block by block.
#include <algorithm>

#include "kernels/gemm_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/workspace.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kSharedBytes = 32
                                 << 20;   // packed shared operand; larger ones are taken in pieces
constexpr int64_t kOwnBytes = 512 << 10;  // a task's packed panels
constexpr int64_t kBlockRows = 168,
                  kBlockColumns = 256;  // of sums at a time, with their operands in the L2 cache
constexpr int64_t kPackTogether =
    1 << 15;                       // elements below which packing is not worth another thread
constexpr int64_t kPackRows = 32;  // of k, even
constexpr int64_t kSlack = 64;     // bytes that the last vector of a panel may overrun
// Longer rows of packed operands are multiplied in slices of k, or the panels of one block of sums
// would not fit the L2 cache and the shared operand not the L3 cache.
constexpr int64_t kSliceBytes = 16 << 10;
constexpr int64_t kPartialBytes = 32 << 20;  // sums of all slices so far

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

void Run(int64_t tasks, bool parallel, FunctionRef<void(int64_t)> fn) {
  if (parallel) return ThreadPool::Get().ParallelFor(tasks, fn);
  for (int64_t i = 0; i < tasks; ++i) fn(i);
}

// The rows of A or the columns of B, cut into panels.
struct Side {
  const char* data;
  int64_t stride, k_stride;
  int64_t count;
  int width;

  bool padded;  // the last panel is as wide as the others

  int64_t panels() const { return CeilDiv(count, width); }
  int RowsOf(int64_t panel) const {
    return static_cast<int>(std::min<int64_t>(width, count - panel * width));
  }
  int WidthOf(int64_t panel) const { return padded ? width : RowsOf(panel); }
};

class Blocked {
 public:
  explicit Blocked(const GemmProblem& p) : p_(p), kernels_(*p.kernels) {
    const int64_t units = CeilDiv(p.k, kernels_.k_unit);
    const int64_t unit_bytes = kernels_.k_unit * kernels_.packed_bytes;
    slices_ = std::max<int64_t>(1, CeilDiv(units * unit_bytes, kSliceBytes));
    slice_ = std::max<int64_t>(1, CeilDiv(units, slices_)) * kernels_.k_unit;
    // Equal heights instead of full tiles and a low rest.
    const auto height = static_cast<int>(CeilDiv(p.m, CeilDiv(p.m, kernels_.max_rows)));
    a_ = {p.a, p.a_row, p.a_col, p.m, height, false};
    b_ = {p.b, p.b_col, p.b_row, p.n, kernels_.nr(), true};
    plain_ = p.alpha == 1 && p.d == nullptr && p.c_col == 1;
  }

  void Multiply(bool parallel) {
    const bool share_a = p_.m <= p_.n;
    const Side& shared = share_a ? a_ : b_;
    const Side& own = share_a ? b_ : a_;
    int64_t fits = kSharedBytes / PanelBytes(shared);
    const int64_t own_columns = own.panels() * own.width;
    if (slices_ > 1)
      fits = std::min(fits, kPartialBytes / (shared.width * own_columns * kernels_.sum_bytes));
    int64_t piece = std::clamp<int64_t>(fits, 1, shared.panels());
    piece = CeilDiv(shared.panels(), CeilDiv(shared.panels(), piece));
    const int64_t threads = parallel ? ThreadPool::Get().size() : 1;
    const int64_t fair = CeilDiv(own.panels(), 4 * threads);
    const int64_t run =
        std::clamp<int64_t>(kOwnBytes / PanelBytes(own), 1, std::max<int64_t>(1, fair));
    partial_stride_ = share_a ? own_columns : piece * shared.width;
    for (int64_t first = 0; first < shared.panels(); first += piece) {
      const int64_t panels = std::min(piece, shared.panels() - first);
      (share_a ? partial_row_ : partial_column_) = first * shared.width;
      if (slices_ > 1) {
        partial_ =
            Buffer(Scratch::kPartial, panels * shared.width * own_columns * kernels_.sum_bytes);
      }
      for (begin_ = 0; begin_ == 0 || begin_ < p_.k; begin_ += slice_) {
        MultiplySlice({nullptr, first, panels}, share_a, run, threads);
      }
    }
  }

 private:
  struct Panels {
    const char* data;
    int64_t first, count;
  };

  // k in [begin_, begin_ + slice_), for some of the shared panels and all of the own ones.
  void MultiplySlice(Panels sharing, bool share_a, int64_t run, int64_t threads) {
    const Side& shared = share_a ? a_ : b_;
    const Side& own = share_a ? b_ : a_;
    const bool parallel = threads > 1;
    char* packed = Buffer(Scratch::kShared, sharing.count * PanelBytes(shared));
    sharing.data = packed;
    const bool together = parallel && sharing.count * shared.width * SliceLength() >= kPackTogether;
    const int64_t at_once = together ? CeilDiv(sharing.count, 4 * threads) : sharing.count;
    Run(CeilDiv(sharing.count, at_once), together, [&](int64_t task) {
      const int64_t begin = task * at_once;
      Pack(shared, sharing.first + begin, std::min(at_once, sharing.count - begin),
           packed + begin * PanelBytes(shared));
    });
    Run(CeilDiv(own.panels(), run), parallel, [&](int64_t task) {
      const int64_t begin = task * run;
      const int64_t count = std::min(run, own.panels() - begin);
      char* mine = Buffer(Scratch::kOwn, count * PanelBytes(own));
      Pack(own, begin, count, mine);
      if (share_a) {
        MultiplyPanels(sharing, {mine, begin, count});
      } else {
        MultiplyPanels({mine, begin, count}, sharing);
      }
    });
  }

  int64_t SliceLength() const { return std::min(slice_, p_.k - begin_); }

  int64_t PanelBytes(const Side& side) const {
    return std::max<int64_t>(kSlack, slice_ * side.width * kernels_.packed_bytes);
  }

  static char* Buffer(Scratch purpose, int64_t bytes) {
    return static_cast<char*>(GetScratch(purpose, static_cast<size_t>(bytes + kSlack)));
  }

  // `count` panels. Where rows of k lie apart, all panels take a few rows before the next ones:
  // their pages stay at hand.
  void Pack(const Side& side, int64_t first, int64_t count, char* to) const {
    const int64_t length = SliceLength();
    const int64_t rows =
        side.k_stride == 1 || count == 1 ? std::max<int64_t>(length, 1) : kPackRows;
    for (int64_t k = 0; k < length; k += rows) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t start = (first + i) * side.width;
        PackArgs args{};
        args.source =
            side.data + (start * side.stride + (begin_ + k) * side.k_stride) * p_.element_bytes;
        args.stride = side.stride;
        args.k_stride = side.k_stride;
        args.k = std::min(rows, length - k);
        args.count = side.RowsOf(first + i);
        args.width = side.WidthOf(first + i);
        args.panel = to + i * PanelBytes(side) + k * args.width * kernels_.packed_bytes;
        kernels_.pack(args);
      }
    }
  }

  void MultiplyPanels(Panels a, Panels b) const {
    const int64_t a_step = std::max<int64_t>(1, kBlockRows / a_.width);
    const int64_t b_step = std::max<int64_t>(1, kBlockColumns / b_.width);
    for (int64_t j = 0; j < b.count; j += b_step) {
      for (int64_t i = 0; i < a.count; i += a_step) {
        MultiplyBlock({a.data + i * PanelBytes(a_), a.first + i, std::min(a_step, a.count - i)},
                      {b.data + j * PanelBytes(b_), b.first + j, std::min(b_step, b.count - j)});
      }
    }
  }

  // One block of sums over all of k, a stretch of k at a time: a panel of B stays in the L1 cache
  // meanwhile.
  void MultiplyBlock(Panels a, Panels b) const {
    int64_t stride = b.count * b_.width;
    char* sums = nullptr;
    if (slices_ > 1) {
      stride = partial_stride_;
      sums = partial_ +
             ((a.first * a_.width - partial_row_) * stride + b.first * b_.width - partial_column_) *
                 kernels_.sum_bytes;
    } else {
      sums = Buffer(Scratch::kSums, a.count * a_.width * stride * kernels_.sum_bytes);
    }
    const bool last_slice = begin_ + slice_ >= p_.k;
    GemmTarget target{};
    if (last_slice) target = BlockTarget(a, b);
    const int64_t units = CeilDiv(SliceLength(), kernels_.k_unit);
    int64_t at = 0;
    do {
      const int64_t stretch = std::min<int64_t>(kernels_.block_units, units - at);
      const GemmTarget* last = last_slice && at + stretch == units ? &target : nullptr;
      for (int64_t j = 0; j < b.count; ++j) {
        for (int64_t i = 0; i < a.count; ++i) {
          char* tile = sums + (i * a_.width * stride + j * b_.width) * kernels_.sum_bytes;
          MultiplyTile(a, b, i, j, at, stretch, tile, stride, last);
        }
      }
      at += stretch;
    } while (at < units);
    if (last_slice) Finished(p_, target);
  }

  GemmTarget BlockTarget(Panels a, Panels b) const {
    const int64_t row = a.first * a_.width, column = b.first * b_.width;
    return TargetOf(p_, row, column, std::min(a.count * a_.width, p_.m - row),
                    std::min(b.count * b_.width, p_.n - column));
  }

  // last: where the result goes, if no more is to be added to the sums.
  void MultiplyTile(Panels a, Panels b, int64_t i, int64_t j, int64_t at, int64_t stretch,
                    char* tile, int64_t stride, const GemmTarget* last) const {
    const int64_t unit_bytes = kernels_.k_unit * kernels_.packed_bytes;
    const int rows = a_.RowsOf(a.first + i);
    const char* a_panel = a.data + i * PanelBytes(a_) + at * rows * unit_bytes;
    const char* b_panel = b.data + j * PanelBytes(b_) + at * b_.width * unit_bytes;
    const int64_t row = (a.first + i) * a_.width, column = (b.first + j) * b_.width;
    const int64_t columns = p_.n - column;
    const int vectors = columns <= kernels_.vector_columns ? 1 : kernels_.vectors;
    const char* in = at == 0 && begin_ == 0 ? nullptr : tile;
    const MicroKernel final = kernels_.final[vectors - 1][rows - 1];
    if (last != nullptr && plain_ && final != nullptr &&
        columns >= vectors * kernels_.vector_columns) {
      final(stretch, a_panel, 0, b_panel, b_.width * unit_bytes, in, stride,
            Element(*last, row, column), last->row_stride);
      return;
    }
    kernels_.packed[vectors - 1][rows - 1](stretch, a_panel, 0, b_panel, b_.width * unit_bytes, in,
                                           stride, tile, stride);
    if (last != nullptr) StoreTile(*last, row, column, tile, stride);
  }

  char* Element(const GemmTarget& target, int64_t row, int64_t column) const {
    return target.data +
           ((row - target.row) * target.row_stride + (column - target.column) * target.col_stride) *
               p_.element_bytes;
  }

  void StoreTile(const GemmTarget& target, int64_t row, int64_t column, const char* tile,
                 int64_t stride) const {
    StoreArgs args{};
    args.sums = tile;
    args.sums_stride = stride;
    args.rows = static_cast<int>(std::min<int64_t>(a_.width, p_.m - row));
    args.cols = static_cast<int>(std::min<int64_t>(b_.width, p_.n - column));
    args.c = Element(target, row, column);
    args.c_row_stride = target.row_stride;
    args.c_col_stride = target.col_stride;
    args.d =
        p_.d == nullptr ? nullptr : p_.d + (row * p_.d_row + column * p_.d_col) * p_.element_bytes;
    args.d_row_stride = p_.d_row;
    args.d_col_stride = p_.d_col;
    args.alpha = p_.alpha;
    args.beta = p_.beta;
    kernels_.store(args);
  }

  const GemmProblem& p_;
  const GemmKernels& kernels_;
  int64_t slices_, slice_;   // of k: their number and the elements of each but a shorter last one
  int64_t begin_ = 0;        // of the slice at hand
  char* partial_ = nullptr;  // sums of the slices before, if there are several
  int64_t partial_stride_ = 0, partial_row_ = 0, partial_column_ = 0;
  Side a_, b_;
  bool plain_;  // C is A * B, in rows
};

}  // namespace

void MultiplyBlocked(const GemmProblem& problem, bool parallel) {
  Blocked(problem).Multiply(parallel);
}

}  // namespace neuron::kernels
