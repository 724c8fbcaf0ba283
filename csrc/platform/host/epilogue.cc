#include "platform/host/epilogue.h"

#include <algorithm>
#include <vector>

namespace neuron::host {
namespace {

// A block of a result whose rows or columns are several dimensions is run piece by piece, each
// inside one row of the outer dimensions: for the kernel these then have size 1.
class Pieces {
 public:
  Pieces(const EpilogueRun& run, const kernels::GemmBlock& block)
      : run_(run),
        epilogue_(run.epilogue),
        block_(block),
        rank_(static_cast<int>(epilogue_.sizes.size())),
        index_(epilogue_.sizes.size(), 0),
        params_(epilogue_.kernel.params),
        element_bytes_(epilogue_.steps[epilogue_.result].back()) {
    for (int d = 0; d < rank_; ++d) params_[d] = 1;
    for (int param : epilogue_.result_params) params_[param] = block.row_stride;
  }

  void Run() {
    const int row_dim = epilogue_.row_dims - 1, column_dim = rank_ - 1;
    for (int64_t row = 0; row < block_.rows;) {
      const int64_t rows = Cut(0, row_dim, block_.row + row, block_.rows - row);
      for (int64_t column = 0; column < block_.columns;) {
        const int64_t columns =
            Cut(epilogue_.row_dims, column_dim, block_.column + column, block_.columns - column);
        params_[row_dim] = rows;
        params_[column_dim] = columns;
        params_[rank_] = columns;  // the chunk
        params_[rank_ + 1] = 1;    // their number
        RunPiece(row, column, rows);
        column += columns;
      }
      row += rows;
    }
  }

 private:
  // Sets the indices of dimensions [first, last] to those of `linear`; how many of `left` elements
  // lie in the same row of the last one.
  int64_t Cut(int first, int last, int64_t linear, int64_t left) {
    for (int d = last; d > first; --d) {
      index_[d] = linear % epilogue_.sizes[d];
      linear /= epilogue_.sizes[d];
    }
    index_[first] = linear;
    return std::min(left, epilogue_.sizes[last] - index_[last]);
  }

  int64_t Offset(const std::vector<int64_t>& steps) const {
    int64_t offset = 0;
    for (int d = 0; d < rank_; ++d) offset += index_[d] * steps[d];
    return offset;
  }

  void RunPiece(int64_t row, int64_t column, int64_t rows) {
    void* operands[kMaxOperands];
    for (int k = 0; k < static_cast<int>(epilogue_.steps.size()); ++k) {
      if (k == epilogue_.result) continue;
      operands[k] = static_cast<char*>(run_.operands[k]) + Offset(epilogue_.steps[k]);
    }
    // Kernels read it only; their table of operands does not tell.
    operands[epilogue_.result] = static_cast<char*>(const_cast<void*>(block_.data)) +
                                 (row * block_.row_stride + column) * element_bytes_;
    for (const Epilogue::Offset& offset : epilogue_.offsets)
      params_[offset.param] = epilogue_.kernel.params[offset.param] + Offset(offset.steps);
    run_.fn(operands, params_.data(), run_.scalars, 0, rows, &run_.context);
  }

  const EpilogueRun& run_;
  const Epilogue& epilogue_;
  const kernels::GemmBlock& block_;
  const int rank_;
  std::vector<int64_t> index_, params_;
  const int64_t element_bytes_;
};

}  // namespace

void RunEpilogue(const EpilogueRun& run, const kernels::GemmBlock& block) {
  Pieces(run, block).Run();
}

}  // namespace neuron::host
