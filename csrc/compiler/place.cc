#include "compiler/place.h"

namespace neuron::compiler {

using ir::OpCode;

std::optional<ir::Dims> ReshapeStrides(const ir::Dims& old_dims, const ir::Dims& old_strides,
                                       const ir::Dims& dims) {
  ir::Dims strides(dims.size(), 1);
  for (int64_t d : old_dims) {
    if (d == 0) return ir::ContiguousStrides(dims);
  }
  // Walk both shapes from the innermost dimension; every maximal run of old dimensions that is
  // evenly spaced can be cut anew.
  int next = static_cast<int>(dims.size()) - 1;
  int64_t run_size = 1;    // elements in the current run of old dimensions
  int64_t run_stride = 1;  // stride of its innermost dimension
  bool open = false;
  for (int d = static_cast<int>(old_dims.size()) - 1; d >= 0; --d) {
    if (old_dims[d] == 1) continue;
    if (!open) {
      run_stride = old_strides[d];
      run_size = 1;
      open = true;
    }
    run_size *= old_dims[d];
    int outer = d - 1;
    while (outer >= 0 && old_dims[outer] == 1) --outer;
    const bool continues = outer >= 0 && old_strides[outer] == run_stride * run_size;
    if (continues) continue;
    int64_t covered = 1;
    while (next >= 0 && (covered < run_size || dims[next] == 1)) {
      if (run_size % (covered * dims[next]) != 0) return std::nullopt;
      strides[next] = run_stride * covered;
      covered *= dims[next--];
    }
    if (covered != run_size) return std::nullopt;
    open = false;
  }
  return strides;
}

std::optional<Place> ApplyView(const ir::Op& op, const Place& place) {
  Place out = place;
  out.dims = op.type.dims;
  out.strides.assign(out.dims.size(), 0);
  switch (op.code) {
    case OpCode::kTranspose:
      for (size_t i = 0; i < out.dims.size(); ++i)
        out.strides[i] = place.strides[op.Ints("permutation")[i]];
      return out;
    case OpCode::kBroadcastInDim:
      for (size_t i = 0; i < place.dims.size(); ++i) {
        const auto to = static_cast<size_t>(op.Ints("dims")[i]);
        if (place.dims[i] == out.dims[to]) out.strides[to] = place.strides[i];
      }
      return out;
    case OpCode::kSlice:
      for (size_t i = 0; i < out.dims.size(); ++i) {
        out.byte_offset += op.Ints("start")[i] * place.strides[i] * ByteSize(place.dtype);
        out.strides[i] = place.strides[i] * op.Ints("stride")[i];
      }
      return out;
    case OpCode::kReshape: {
      const auto strides = ReshapeStrides(place.dims, place.strides, out.dims);
      if (!strides) return std::nullopt;
      out.strides = *strides;
      return out;
    }
    default:
      return std::nullopt;
  }
}

}  // namespace neuron::compiler
