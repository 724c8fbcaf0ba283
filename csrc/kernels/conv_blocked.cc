// Convolution by the matrix kernels: weights in panels, a band of the input with channels
// innermost.
#include <algorithm>
#include <cstring>

#include "kernels/conv_problem.h"
#include "kernels/thread_pool.h"
#include "kernels/transpose.h"
#include "kernels/workspace.h"

namespace neuron::kernels {
namespace {

constexpr int64_t kBandBytes = 768 << 10;                   // of copied input
constexpr int64_t kBlockPixels = 168, kBlockColumns = 256;  // of sums at a time
constexpr int64_t kMergedChannels = 64;  // fewer: the taps of a row of the kernel are one sum
constexpr int64_t kSlack = 64;           // bytes that the last vector of a panel may overrun

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t RoundUp(int64_t value, int64_t unit) { return CeilDiv(value, unit) * unit; }

void Run(int64_t tasks, bool parallel, FunctionRef<void(int64_t)> fn) {
  if (parallel) return ThreadPool::Get().ParallelFor(tasks, fn);
  for (int64_t i = 0; i < tasks; ++i) fn(i);
}

class Blocked {
 public:
  Blocked(const ConvProblem& problem, const ConvPhase& phase)
      : p_(problem),
        a_(problem.args),
        gemm_(problem.gemm),
        depth_(phase.axes[0]),
        height_(phase.axes[1]),
        width_(phase.axes[2]) {
    packed_ = gemm_.packed_bytes;
    nr_ = gemm_.nr();
    channels_ = RoundUp(p_.group_in(), gemm_.k_unit);
    merged_ = channels_ < kMergedChannels && Consecutive(width_);
    pitch_ = channels_;
    // Pixels at a power of two would share a few sets of the L1 cache.
    if (!merged_ && channels_ * packed_ % 256 == 0) pitch_ += 64 / packed_;
    taps_ = static_cast<int64_t>(depth_.taps.size() * height_.taps.size() * width_.taps.size());
    panels_ = CeilDiv(p_.group_out(), nr_);
    columns_ = width_.span(width_.count);
    tile_ = CeilDiv(width_.count, CeilDiv(width_.count, gemm_.max_rows));
    MakeRuns();
  }

  void Compute(bool parallel) {
    const int64_t threads = parallel ? ThreadPool::Get().size() : 1;
    weights_ = static_cast<char*>(GetScratch(
        Scratch::kShared, static_cast<size_t>(a_.groups * panels_ * PanelBytes() + kSlack)));
    Run(a_.groups * panels_, parallel, [&](int64_t i) { PackPanel(i / panels_, i % panels_); });
    ChooseBands(threads);
    const int64_t bands = CeilDiv(height_.count, band_rows_);
    const int64_t planes = a_.batch * a_.groups * depth_.count;
    const int64_t splits =
        std::clamp<int64_t>(CeilDiv(2 * threads, planes * bands), 1, threads == 1 ? 1 : panels_);
    Run(planes * bands * splits, parallel, [&](int64_t i) {
      const int64_t split = i % splits, band = i / splits % bands, plane = i / splits / bands;
      Band where{};
      where.depth = plane % depth_.count;
      where.group = plane / depth_.count % a_.groups;
      where.item = plane / depth_.count / a_.groups;
      where.row = band * band_rows_;
      where.rows = std::min(band_rows_, height_.count - where.row);
      where.first_panel = panels_ * split / splits;
      where.last_panel = panels_ * (split + 1) / splits;
      ComputeBand(where);
    });
  }

 private:
  struct Band {
    int64_t item, group, depth, row, rows;  // outputs of the phase
    int64_t first_panel, last_panel;
    const char* input = nullptr;
    int64_t input_rows = 0;  // per tap of depth
  };
  // What is summed without a gap in the copied input: `units` from a pixel's place on.
  struct Sum {
    int64_t depth_tap, row_offset, column_offset, start, units, weight;
  };
  // Neighbouring outputs of one row.
  struct Tile {
    int64_t row, column, pixels, at;  // at: its first row of sums
  };

  static bool Consecutive(const ConvAxis& axis) {
    for (size_t i = 1; i < axis.taps.size(); ++i) {
      if (axis.taps[i].offset != axis.taps[i - 1].offset + 1) return false;
    }
    return true;
  }

  int64_t PanelBytes() const { return taps_ * channels_ * nr_ * packed_; }

  void MakeRuns() {
    int64_t weight = 0;  // elements of k before
    const auto add = [&](int64_t depth_tap, int64_t row, int64_t column, int64_t elements) {
      const int64_t units = elements / gemm_.k_unit;
      for (int64_t at = 0; at < units; at += gemm_.block_units) {
        sums_.push_back({depth_tap, row, column, at * gemm_.k_unit * packed_,
                         std::min<int64_t>(gemm_.block_units, units - at),
                         weight + at * gemm_.k_unit});
      }
      weight += elements;
    };
    for (size_t d = 0; d < depth_.taps.size(); ++d) {
      for (const ConvTap& h : height_.taps) {
        const int64_t row = h.offset - height_.first();
        if (merged_) {
          add(static_cast<int64_t>(d), row, 0,
              channels_ * static_cast<int64_t>(width_.taps.size()));
          continue;
        }
        for (const ConvTap& w : width_.taps)
          add(static_cast<int64_t>(d), row, w.offset - width_.first(), channels_);
      }
    }
  }

  void ChooseBands(int64_t threads) {
    const int64_t row_bytes = std::max<int64_t>(1, columns_ * pitch_ * packed_) *
                              std::max<int64_t>(1, static_cast<int64_t>(depth_.taps.size()));
    const auto bytes = [&](int64_t rows) { return height_.span(rows) * row_bytes; };
    band_rows_ = height_.count;
    while (band_rows_ > 1 && bytes(band_rows_) > kBandBytes) band_rows_ = CeilDiv(band_rows_, 2);
    const int64_t planes = a_.batch * a_.groups * depth_.count;
    while (band_rows_ > 8 && planes * CeilDiv(height_.count, band_rows_) < 4 * threads)
      band_rows_ = CeilDiv(band_rows_, 2);
    band_rows_ = CeilDiv(height_.count, CeilDiv(height_.count, band_rows_));
  }

  // Weights of nr_ output channels, [tap][input channel][output channel].
  void PackPanel(int64_t group, int64_t panel) const {
    const int64_t k = taps_ * channels_, bytes = p_.element_bytes();
    const int64_t count = std::min<int64_t>(nr_, p_.group_out() - panel * nr_);
    char* rows = static_cast<char*>(
        GetScratch(Scratch::kOwn, static_cast<size_t>((count + 1) * k * bytes + kSlack)));
    if (channels_ != p_.group_in()) std::memset(rows, 0, static_cast<size_t>(count * k * bytes));
    for (int64_t i = 0; i < count; ++i) {
      const char* from = static_cast<const char*>(a_.w) +
                         (group * p_.w_group() + (panel * nr_ + i) * p_.w_out()) * bytes;
      GatherWeights(from, rows + i * k * bytes);
    }
    PackArgs pack{};
    pack.source = rows;
    pack.stride = k;
    pack.k_stride = 1;
    pack.k = k;
    pack.count = static_cast<int>(count);
    pack.width = static_cast<int>(nr_);
    pack.panel = weights_ + (group * panels_ + panel) * PanelBytes();
    gemm_.pack(pack);
  }

  // One output channel's weights, to [tap][channel].
  void GatherWeights(const char* from, char* to) const {
    const int64_t bytes = p_.element_bytes(), inputs = p_.group_in();
    const auto& s = a_.w_strides;
    const int64_t all = a_.kernel[0] * a_.kernel[1] * a_.kernel[2];
    const bool dense = (a_.kernel[2] == 1 || s[4] == 1) &&
                       (a_.kernel[1] == 1 || s[3] == a_.kernel[2]) &&
                       (a_.kernel[0] == 1 || s[2] == a_.kernel[1] * a_.kernel[2]);
    if (dense && all == taps_ && !a_.transposed && p_.w_in() != 1) {
      Transpose(bytes, inputs, all, from, p_.w_in(), to, channels_, p_.isa);
      return;
    }
    for (const ConvTap& d : depth_.taps) {
      for (const ConvTap& h : height_.taps) {
        for (const ConvTap& w : width_.taps) {
          const char* tap = from + (d.index * s[2] + h.index * s[3] + w.index * s[4]) * bytes;
          CopyElements(tap, p_.w_in(), inputs, to);
          to += channels_ * bytes;
        }
      }
    }
  }

  void CopyElements(const char* from, int64_t stride, int64_t count, char* to) const {
    const int64_t bytes = p_.element_bytes();
    if (stride == 1) {
      std::memcpy(to, from, static_cast<size_t>(count * bytes));
    } else if (bytes == 2) {
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + 2 * i, from + 2 * i * stride, 2);
    } else {
      for (int64_t i = 0; i < count; ++i) std::memcpy(to + 4 * i, from + 4 * i * stride, 4);
    }
  }

  // Elements as the matrix kernels take them, one pixel.
  void Widen(const char* from, int64_t stride, char* to) const {
    if (packed_ == p_.element_bytes()) return CopyElements(from, stride, p_.group_in(), to);
    gemm_.widen(from, stride, p_.group_in(), reinterpret_cast<float*>(to));
  }

  // `count` pixels of a row.
  void CopyPixels(const char* from, int64_t count, char* to, char* narrow) const {
    const int64_t bytes = p_.element_bytes(), inputs = p_.group_in();
    const int64_t channel = a_.x_strides[1], pixel = a_.x_strides[4];
    if (channel == 1 || pixel != 1) {
      for (int64_t i = 0; i < count; ++i)
        Widen(from + i * pixel * bytes, channel, to + i * pitch_ * packed_);
      return;
    }
    if (packed_ == bytes) return Transpose(bytes, inputs, count, from, channel, to, pitch_, p_.isa);
    Transpose(bytes, inputs, count, from, channel, narrow, inputs, p_.isa);
    for (int64_t i = 0; i < count; ++i)
      Widen(narrow + i * inputs * bytes, 1, to + i * pitch_ * packed_);
  }

  // The band's input, [tap of depth][row][column][channel], zeros around the image.
  void CopyInput(const Band& band, char* to, char* narrow) const {
    const int64_t row_bytes = columns_ * pitch_ * packed_;
    const int64_t first_row = band.row * height_.in_step + height_.first();
    const int64_t left = std::clamp<int64_t>(-width_.first(), 0, columns_);
    const int64_t right =
        std::clamp<int64_t>(a_.in[2] - width_.first(), left, columns_);  // first column beyond
    for (const ConvTap& tap : depth_.taps) {
      const int64_t depth = band.depth * depth_.in_step + tap.offset;
      for (int64_t r = 0; r < band.input_rows; ++r, to += row_bytes) {
        const int64_t row = first_row + r;
        const bool inside =
            depth >= 0 && depth < a_.in[0] && row >= 0 && row < a_.in[1] && right > left;
        if (!inside || channels_ != p_.group_in()) {
          std::memset(to, 0, static_cast<size_t>(row_bytes));
        } else {
          std::memset(to, 0, static_cast<size_t>(left * pitch_ * packed_));
          std::memset(to + right * pitch_ * packed_, 0,
                      static_cast<size_t>((columns_ - right) * pitch_ * packed_));
        }
        if (!inside) continue;
        const auto& s = a_.x_strides;
        const int64_t at = band.item * s[0] + band.group * p_.group_in() * s[1] + depth * s[2] +
                           row * s[3] + (width_.first() + left) * s[4];
        CopyPixels(static_cast<const char*>(a_.x) + at * p_.element_bytes(), right - left,
                   to + left * pitch_ * packed_, narrow);
      }
    }
  }

  void ComputeBand(Band band) const {
    band.input_rows = height_.span(band.rows);
    const int64_t bytes = p_.element_bytes();
    const int64_t input = RoundUp(
        static_cast<int64_t>(depth_.taps.size()) * band.input_rows * columns_ * pitch_ * packed_ +
            kSlack,
        kSlack);
    const int64_t narrow = RoundUp(columns_ * p_.group_in() * bytes + kSlack, kSlack);
    const int64_t turned = (kBlockPixels + tile_) * kBlockColumns * bytes + kSlack;
    char* own =
        static_cast<char*>(GetScratch(Scratch::kOwn, static_cast<size_t>(input + narrow + turned)));
    CopyInput(band, own, own + input);
    band.input = own;
    std::vector<Tile> tiles;
    int64_t pixels = 0;
    for (int64_t row = 0; row < band.rows; ++row) {
      for (int64_t column = 0; column < width_.count; column += tile_) {
        const int64_t count = std::min(tile_, width_.count - column);
        tiles.push_back({row, column, count, pixels});
        pixels += count;
        const bool last = row + 1 == band.rows && column + count == width_.count;
        if (pixels < kBlockPixels && !last) continue;
        ComputeTiles(band, tiles, pixels, own + input + narrow);
        tiles.clear();
        pixels = 0;
      }
    }
  }

  void ComputeTiles(const Band& band, const std::vector<Tile>& tiles, int64_t pixels,
                    char* turned) const {
    const int64_t step = std::max<int64_t>(1, kBlockColumns / nr_);
    for (int64_t panel = band.first_panel; panel < band.last_panel; panel += step) {
      const int64_t count = std::min(step, band.last_panel - panel);
      const int64_t stride = count * nr_;
      float* sums = static_cast<float*>(GetScratch(
          Scratch::kSums, static_cast<size_t>(pixels * stride) * sizeof(float) + kSlack));
      if (sums_.empty()) std::fill_n(sums, pixels * stride, 0.0f);
      bool first = true;
      for (const Sum& sum : sums_) {
        for (int64_t j = 0; j < count; ++j)
          Multiply(band, sum, tiles, panel, j, sums, stride, first);
        first = false;
      }
      Store(band, tiles, panel * nr_, std::min(stride, p_.group_out() - panel * nr_), sums, stride,
            turned);
    }
  }

  void Multiply(const Band& band, const Sum& sum, const std::vector<Tile>& tiles, int64_t panel,
                int64_t j, float* sums, int64_t stride, bool first) const {
    const int64_t columns = p_.group_out() - (panel + j) * nr_;
    const auto& kernels = gemm_.unpacked[(columns <= gemm_.vector_columns ? 1 : gemm_.vectors) - 1];
    const char* b =
        weights_ + (band.group * panels_ + panel + j) * PanelBytes() + sum.weight * nr_ * packed_;
    const int64_t pixel_bytes = pitch_ * packed_;
    const char* input =
        band.input + sum.start +
        ((sum.depth_tap * band.input_rows + sum.row_offset) * columns_ + sum.column_offset) *
            pixel_bytes;
    for (const Tile& tile : tiles) {
      const char* a =
          input +
          (tile.row * height_.in_step * columns_ + tile.column * width_.in_step) * pixel_bytes;
      float* out = sums + tile.at * stride + j * nr_;
      kernels[tile.pixels - 1](sum.units, a, width_.in_step * pixel_bytes, b,
                               nr_ * gemm_.k_unit * packed_, first ? nullptr : out, stride, out,
                               stride);
    }
  }

  // Sums of the channels [channel, channel + count) of the group, to y.
  void Store(const Band& band, const std::vector<Tile>& tiles, int64_t channel, int64_t count,
             const float* sums, int64_t stride, char* turned) const {
    const int64_t bytes = p_.element_bytes();
    const auto& s = a_.y_strides;
    channel += band.group * p_.group_out();
    // Neighbours in a row lie together, channels do not: transposed on the way.
    const bool turn = s[1] != 1 && s[4] * width_.step == 1;
    for (size_t i = 0; i < tiles.size();) {
      const Tile& tile = tiles[i];
      int64_t pixels = 0;  // of this row
      for (; i < tiles.size() && tiles[i].row == tile.row; ++i) pixels += tiles[i].pixels;
      const int64_t at = band.item * s[0] + channel * s[1] +
                         (depth_.start + band.depth * depth_.step) * s[2] +
                         (height_.start + (band.row + tile.row) * height_.step) * s[3] +
                         (width_.start + tile.column * width_.step) * s[4];
      char* y = static_cast<char*>(a_.y) + at * bytes;
      StoreArgs store{};
      store.sums = sums + tile.at * stride;
      store.sums_stride = stride;
      store.rows = static_cast<int>(pixels);
      store.cols = static_cast<int>(count);
      store.c = turn ? turned : y;
      store.c_row_stride = turn ? count : s[4] * width_.step;
      store.c_col_stride = turn ? 1 : s[1];
      store.alpha = 1;
      if (a_.bias != nullptr) {
        store.d = static_cast<const char*>(a_.bias) + channel * a_.bias_stride * bytes;
        store.d_col_stride = a_.bias_stride;
        store.beta = 1;
      }
      gemm_.store(store);
      if (turn) Transpose(bytes, pixels, count, turned, count, y, s[1], p_.isa);
    }
  }

  const ConvProblem& p_;
  const ConvArgs& a_;
  const GemmKernels& gemm_;
  const ConvAxis &depth_, &height_, &width_;
  int64_t packed_, nr_;
  int64_t channels_;  // input channels of a group, in whole units
  bool merged_;       // channels of neighbouring taps follow each other in the copied input
  int64_t pitch_;     // elements of a copied pixel
  int64_t taps_, panels_;
  int64_t columns_;  // of copied input
  int64_t tile_;     // outputs of a tile
  int64_t band_rows_ = 1;
  std::vector<Sum> sums_;
  char* weights_ = nullptr;
};

}  // namespace

void ConvolvePhase(const ConvProblem& problem, const ConvPhase& phase, bool parallel) {
  Blocked(problem, phase).Compute(parallel);
}

}  // namespace neuron::kernels
