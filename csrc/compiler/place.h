// Where a tensor value lies in memory during an executable's run.
#pragma once

#include <optional>

#include "ir/graph.h"

namespace neuron::compiler {

// A strided view of a launch operand.
struct Place {
  int operand = 0;  // launch operand: parameters, outputs, scratch
  int64_t byte_offset = 0;
  DType dtype = DType::kF32;
  ir::Dims dims;
  ir::Dims strides;  // in elements
};

// The view of `place` that a transpose, slice, broadcast or reshape operation describes; nullopt
// for a reshape whose elements are not evenly spaced in the view, and for every other operation.
std::optional<Place> ApplyView(const ir::Op& op, const Place& place);

// Strides of `dims` over the same elements in the same row-major order, or nullopt.
std::optional<ir::Dims> ReshapeStrides(const ir::Dims& old_dims, const ir::Dims& old_strides,
                                       const ir::Dims& dims);

}  // namespace neuron::compiler
