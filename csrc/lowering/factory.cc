// Tensors from numbers.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

void LowerFillScalar(Context& c) { c.Return({c.S("value", c.Result().dtype)}); }
void LowerFillTensor(Context& c) { c.Return({c.T("value")}); }
void LowerZero(Context& c) { c.Return({c.b.Const(c.Result().dtype, 0)}); }

// start + i * step: in i64 for integers, in f64 (as PyTorch CPU accumulates) for floats.
void LowerArange(Context& c) {
  auto& b = c.b;
  const DType dtype = IsIntegral(c.Result().dtype) ? DType::kI64 : DType::kF64;
  Op* i = b.Iota(dtype, c.Result().dims, 0);
  c.Return({b.Add(b.Mul(i, c.S("step", dtype)), c.S("start", dtype))});
}

void LowerEye(Context& c) {
  const Dims& dims = c.Result().dims;
  Op* row = c.b.Iota(DType::kI64, dims, 0);
  c.Return({c.b.Compare("EQ", row, c.b.Iota(DType::kI64, dims, 1))});
}

}  // namespace

void AddFactories(Table& t) {
  t.Add("fill_.Scalar", LowerFillScalar).aliases = {"fill.Scalar"};
  t.Add("fill_.Tensor", LowerFillTensor).aliases = {"fill.Tensor"};
  t.Add("zero_", LowerZero).moves_only = true;
  t.Add("arange.start_out", LowerArange).static_args = {"start", "end", "step"};
  t.Add("eye.m_out", LowerEye).aliases = {"eye.out"};
}

}  // namespace neuron::lowering
