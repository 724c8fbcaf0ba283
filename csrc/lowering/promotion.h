// PyTorch's dtype promotion (torch.result_type) for lowerings.
#pragma once

#include <vector>

#include "lowering/context.h"

namespace neuron::lowering {

DType Promote(DType a, DType b);

// Accumulates operands: tensors with dimensions decide over 0-dim tensors over Python numbers,
// unless a lower one is of a higher kind (bool < integer < float < complex).
class ResultType {
 public:
  explicit ResultType(DType default_float) : default_float_(default_float) {}
  ResultType& Add(const TensorArg& tensor);
  ResultType& Add(const ScalarArg& scalar);
  DType Get() const;

 private:
  struct Slot {
    bool used = false;
    DType dtype = DType::kBool;
    void Add(DType t) { dtype = used ? Promote(dtype, t) : t, used = true; }
  };
  DType default_float_;
  Slot dims_, zero_dim_, number_;
};

// The dtype in which arithmetic on `dtype` is done: f32 for bf16 and f16.
inline DType ComputeType(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype;
}

// A tensor operand cast to `common` and then to its compute type; a single element is not rounded
// to `common` on the way, as PyTorch's CPU kernels treat scalar operands.
Op* ToCompute(Context& c, Op* x, DType common);

}  // namespace neuron::lowering
