// Shorthand for building graphs. Every function appends operations to one graph.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace neuron::ir {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}
  Graph& graph() { return graph_; }

  Op* Unary(OpCode code, Op* x) { return graph_.Add(code, x->type, {x}); }
  // Both of one dtype; shapes are broadcast to each other first.
  Op* Binary(OpCode code, Op* x, Op* y);
  Op* Compare(const char* direction, Op* x, Op* y);
  Op* Select(Op* condition, Op* x, Op* y);

  Op* Add(Op* x, Op* y) { return Binary(OpCode::kAdd, x, y); }
  Op* Sub(Op* x, Op* y) { return Binary(OpCode::kSubtract, x, y); }
  Op* Mul(Op* x, Op* y) { return Binary(OpCode::kMultiply, x, y); }
  Op* Div(Op* x, Op* y) { return Binary(OpCode::kDivide, x, y); }
  Op* Max(Op* x, Op* y) { return Binary(OpCode::kMaximum, x, y); }
  Op* Min(Op* x, Op* y) { return Binary(OpCode::kMinimum, x, y); }
  Op* Mul(Op* x, double y) { return Mul(x, Const(x->type.dtype, y)); }
  Op* Add(Op* x, double y) { return Add(x, Const(x->type.dtype, y)); }

  // x itself if it has the dtype already.
  Op* Convert(Op* x, DType dtype);
  // Rank 0. `value` must be representable in an integral dtype if dtype is one.
  Op* Const(DType dtype, double value);
  Op* ConstInt(DType dtype, int64_t value);
  // A number that follows from shapes or dims, rank 0: never part of the code.
  Op* Shape(DType dtype, int64_t value);
  // The largest (or smallest) value of the dtype: infinities for floats.
  Op* Limit(DType dtype, bool largest);

  // As NumPy: dimensions are aligned at the right. x itself if it has these dims already.
  Op* Broadcast(Op* x, const Dims& dims);
  Op* BroadcastInDim(Op* x, const Dims& result, Dims dims);
  Op* Reshape(Op* x, const Dims& dims);
  Op* Transpose(Op* x, const Dims& permutation);
  Op* Slice(Op* x, int64_t dim, int64_t start, int64_t limit, int64_t step = 1);
  Op* Concatenate(std::vector<Op*> parts, int64_t dim);
  Op* Pad(Op* x, Op* value, const Dims& low, const Dims& high);
  Op* Iota(DType dtype, const Dims& dims, int64_t dim);
  // dims vanish; kept as size 1 if keep.
  Op* Reduce(Op* x, const char* kind, const Dims& dims, bool keep = false);

 private:
  Graph& graph_;
};

// The shape that both broadcast to; throws kInvalidArgument if there is none.
Dims BroadcastDims(const Dims& a, const Dims& b);
// Wraps negatives; throws kOutOfRange as PyTorch words it. rank 0 counts as rank 1.
int64_t WrapDim(int64_t dim, int64_t rank);

}  // namespace neuron::ir
