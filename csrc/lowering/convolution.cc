// Convolutions.
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

void LowerConvolution(Context& c) {
  std::vector<Op*> operands{c.T("input"), c.T("weight")};
  if (Op* bias = c.OptionalT("bias")) operands.push_back(bias);
  const auto rank = static_cast<size_t>(operands[0]->type.rank() - 2);
  const auto per_dim = [&](const char* name) {
    Dims values = c.Ints(name);
    return values.size() == 1 ? Dims(rank, values[0]) : values;
  };
  c.Return(
      {c.b.graph().Add(OpCode::kConvolution, {operands[0]->type.dtype, c.Result().dims}, operands,
                       {{"stride", per_dim("stride")},
                        {"padding", per_dim("padding")},
                        {"dilation", per_dim("dilation")},
                        {"transposed", static_cast<int64_t>(c.Bool("transposed"))},
                        {"output_padding", per_dim("output_padding")},
                        {"groups", c.Int("groups")}})});
}

// The device's own op: the gradient of an ordinary convolution's weight.
void LowerWeightGrad(Context& c) {
  const auto rank = static_cast<size_t>(c.T("input")->type.rank() - 2);
  const auto per_dim = [&](const char* name) {
    Dims values = c.Ints(name);
    return values.size() == 1 ? Dims(rank, values[0]) : values;
  };
  c.Return({c.b.graph().Add(OpCode::kConvolutionWeightGrad, c.Result(),
                            {c.T("input"), c.T("grad_output")},
                            {{"stride", per_dim("stride")},
                             {"padding", per_dim("padding")},
                             {"dilation", per_dim("dilation")},
                             {"groups", c.Int("groups")}})});
}

}  // namespace

void AddConvolutions(Table& t) {
  t.Add("convolution", LowerConvolution);
  t.Add("neuron::convolution_weight_grad", LowerWeightGrad);
}

}  // namespace neuron::lowering
