// Products and convolutions. Half-precision ones are accumulated in f32 and rounded once.
#include <cmath>

#include "ir/stablehlo_emit.h"
#include "ir/stablehlo_text.h"

namespace neuron::ir::hlo {
namespace {

DType Accumulator(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype;
}

// "[b, f, 0, 1]" and the like: the letters of the first two dimensions, then the spatial ones.
std::string Layout(const char* first, const char* second, size_t spatial) {
  Names parts{first, second};
  for (size_t d = 0; d < spatial; ++d) parts.push_back(std::to_string(d));
  return "[" + Join(parts) + "]";
}

struct Window {
  Dims stride, low, high, lhs_dilation, rhs_dilation;
  bool reverse = false;
};

std::string WindowText(const Window& w) {
  Names pads, reverse;
  for (size_t d = 0; d < w.low.size(); ++d) {
    pads.push_back(StrCat("[", w.low[d], ", ", w.high[d], "]"));
    reverse.push_back(w.reverse ? "true" : "false");
  }
  return StrCat("window = {stride = [", List(w.stride), "], pad = [", Join(pads),
                "], lhs_dilate = [", List(w.lhs_dilation), "], rhs_dilate = [",
                List(w.rhs_dilation), "], reverse = [", Join(reverse), "]}");
}

}  // namespace

std::string Emitter::EmitDot(const Op& op, const Names& a) {
  const Type& lhs = op.operands[0]->type;
  const Type& rhs = op.operands[1]->type;
  const Type sum{Accumulator(op.type.dtype), op.type.dims};
  const Dims& batch = op.Ints("lhs_batch");
  const std::string batching = batch.empty() ? ""
                                             : StrCat("batching_dims = [", List(batch), "] x [",
                                                      List(op.Ints("rhs_batch")), "], ");
  std::string out = Line(StrCat("stablehlo.dot_general ", a[0], ", ", a[1], ", ", batching,
                                "contracting_dims = [", List(op.Ints("lhs_contract")), "] x [",
                                List(op.Ints("rhs_contract")), "] : (", TypeNames({lhs, rhs}),
                                ") -> ", TypeName(sum)));
  const auto factor = [&](const char* name) -> Attribute {
    const double value = op.Has(name) ? op.Double(name) : 1;
    if (IsIntegral(sum.dtype)) return static_cast<int64_t>(value);
    return value;
  };
  if (op.Has("alpha") && op.Double("alpha") != 1)
    out = Simple("multiply", {out, Constant(sum, factor("alpha"))}, sum);
  if (op.operands.size() == 3) {
    std::string addend = Convert(a[2], op.operands[2]->type, sum.dtype);
    if (op.Has("beta") && op.Double("beta") != 1)
      addend = Simple("multiply", {addend, Constant(sum, factor("beta"))}, sum);
    out = Simple("add", {out, addend}, sum);
  }
  return Convert(out, sum, op.type.dtype);
}

std::string Emitter::EmitConvolution(const Op& op, const Names& a) {
  const Type& input = op.operands[0]->type;
  Type weight = op.operands[1]->type;
  const size_t spatial = op.Ints("stride").size();
  const int64_t groups = op.Int("groups");
  const Dims ones(spatial, 1);
  Window window{op.Ints("stride"), op.Ints("padding"), op.Ints("padding"), ones,
                op.Ints("dilation")};
  std::string kernel = a[1];
  if (op.Int("transposed") == 1) {
    // The gradient of a convolution: over the input with stride - 1 zeros between its elements, by
    // the reversed kernel, whose channels change places within each group.
    window.reverse = true;
    window.lhs_dilation = window.stride;
    window.stride = ones;
    for (size_t d = 0; d < spatial; ++d) {
      const int64_t reach = op.Ints("dilation")[d] * (weight.dims[d + 2] - 1);
      window.low[d] = reach - op.Ints("padding")[d];
      window.high[d] = window.low[d] + op.Ints("output_padding")[d];
    }
    Dims split{groups, weight.dims[0] / groups, weight.dims[1]};
    split.insert(split.end(), weight.dims.begin() + 2, weight.dims.end());
    kernel = Reshape(kernel, weight, split);
    Dims swapped = split, order(split.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
    std::swap(swapped[1], swapped[2]);
    std::swap(order[1], order[2]);
    kernel =
        Line(StrCat("stablehlo.transpose ", kernel, ", dims = [", List(order), "] : (",
                    TypeName({weight.dtype, split}), ") -> ", TypeName({weight.dtype, swapped})));
    const int64_t in_group = weight.dims[0] / groups;
    weight.dims[0] = groups * weight.dims[1];
    weight.dims[1] = in_group;
    kernel = Reshape(kernel, {weight.dtype, swapped}, weight.dims);
  }
  const Type sum{Accumulator(op.type.dtype), op.type.dims};
  std::string out = Line(StrCat(
      "stablehlo.convolution(", a[0], ", ", kernel, ") dim_numbers = ", Layout("b", "f", spatial),
      "x", Layout("o", "i", spatial), "->", Layout("b", "f", spatial), ", ", WindowText(window),
      " {batch_group_count = 1 : i64, feature_group_count = ", groups, " : i64} : (",
      TypeNames({input, weight}), ") -> ", TypeName(sum)));
  if (op.operands.size() == 3) {
    const Type& bias = op.operands[2]->type;
    const std::string wide = Convert(a[2], bias, sum.dtype);
    const std::string full = Line(StrCat("stablehlo.broadcast_in_dim ", wide, ", dims = [1] : (",
                                         TypeName({sum.dtype, bias.dims}), ") -> ", TypeName(sum)));
    out = Simple("add", {out, full}, sum);
  }
  return Convert(out, sum, op.type.dtype);
}

// The convolution of input and gradient, each batch a feature: the gradient is the kernel, strided
// as the convolution was dilated and dilated as it was strided.
std::string Emitter::EmitWeightGrad(const Op& op, const Names& a) {
  const Type& input = op.operands[0]->type;
  const Type& grad = op.operands[1]->type;
  const size_t spatial = op.Ints("stride").size();
  Window window{op.Ints("dilation"), op.Ints("padding"), Dims(spatial), Dims(spatial, 1),
                op.Ints("stride")};
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t needed = (grad.dims[d + 2] - 1) * op.Ints("stride")[d] +
                           op.Ints("dilation")[d] * (op.type.dims[d + 2] - 1) + 1;
    window.high[d] = needed - input.dims[d + 2] - op.Ints("padding")[d];
  }
  const Type sum{Accumulator(op.type.dtype), op.type.dims};
  const std::string out = Line(StrCat(
      "stablehlo.convolution(", a[0], ", ", a[1], ") dim_numbers = ", Layout("f", "b", spatial),
      "x", Layout("i", "o", spatial), "->", Layout("f", "b", spatial), ", ", WindowText(window),
      " {batch_group_count = ", op.Int("groups"), " : i64, feature_group_count = 1 : i64} : (",
      TypeNames({input, grad}), ") -> ", TypeName(sum)));
  return Convert(out, sum, op.type.dtype);
}

}  // namespace neuron::ir::hlo
