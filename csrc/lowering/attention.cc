// Fused attention. `attention` and `attention_backward` are the device's own ops behind PyTorch's
// overrideable ones (csrc/aten/own_ops.cc has their schemas).
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

using Attributes = std::map<std::string, ir::Attribute, std::less<>>;

// Appends query, key, value, attn_bias? and, with dropout, seed and offset.
Attributes AppendAttention(Context& c, std::vector<Op*>& operands) {
  const Dims& q = c.T("query")->type.dims;
  for (const char* name : {"query", "key", "value"}) operands.push_back(c.T(name));
  if (Op* bias = c.OptionalT("attn_bias")) {
    operands.push_back(c.b.Broadcast(bias, {q[0], q[1], q[2], c.T("key")->type.dims[2]}));
  }
  Attributes attributes{{"is_causal", static_cast<int64_t>(c.Bool("is_causal"))},
                        {"scale", c.Static("scale")}};
  if (c.Static("dropout_p") != 0) {
    attributes.emplace("dropout", c.Static("dropout_p"));
    const auto word = [&](const char* name) { return c.b.Reshape(c.T(name), {1}); };
    operands.push_back(c.b.Concatenate({word("philox_seed"), word("philox_offset")}, 0));
  }
  return attributes;
}

void LowerAttention(Context& c) {
  std::vector<Op*> operands;
  const Attributes attributes = AppendAttention(c, operands);
  Op* out = c.b.graph().Add(OpCode::kAttention, c.Result(0), operands, attributes);
  Op* lse = c.b.graph().Add(OpCode::kAttentionLse, c.Result(1), operands, attributes);
  c.Return({out, lse});
}

void LowerAttentionBackward(Context& c) {
  std::vector<Op*> operands{c.T("grad_out"), c.T("out"), c.T("logsumexp")};
  Attributes attributes = AppendAttention(c, operands);
  std::vector<Op*> gradients;
  for (const char* of : {"q", "k", "v"}) {
    attributes.insert_or_assign("of", std::string(of));
    gradients.push_back(
        c.b.graph().Add(OpCode::kAttentionGrad, c.Result(gradients.size()), operands, attributes));
  }
  c.Return(gradients);
}

// [B,H,L,E] as [B*H,L,E] in the compute dtype; heads that are shared are repeated.
Op* Matrices(Context& c, const char* name, DType dtype, int64_t heads) {
  auto& b = c.b;
  Op* x = b.Convert(c.T(name), dtype);
  const Dims d = x->type.dims;
  if (d[1] != heads) x = b.BroadcastInDim(x, {d[0], d[1], heads / d[1], d[2], d[3]}, {0, 1, 3, 4});
  return b.Reshape(x, {d[0] * heads, d[2], d[3]});
}

// lhs [n,L,E] . rhs [n,S,E] -> [n,L,S]
Op* TimesTransposed(Context& c, Op* lhs, Op* rhs) {
  const Dims& l = lhs->type.dims;
  return c.b.graph().Add(OpCode::kDotGeneral, {lhs->type.dtype, {l[0], l[1], rhs->type.dims[1]}},
                         {lhs, c.b.Transpose(rhs, {0, 2, 1})},
                         {{"lhs_batch", Dims{0}},
                          {"rhs_batch", Dims{0}},
                          {"lhs_contract", Dims{2}},
                          {"rhs_contract", Dims{1}}});
}

// The probabilities [B,H,L,S] again, not kept: rows that are masked throughout are 0.
Op* Probabilities(Context& c, DType dtype) {
  auto& b = c.b;
  const int64_t heads = c.T("query")->type.dims[1];
  Op* query = Matrices(c, "query", dtype, heads);
  Op* scores = TimesTransposed(c, query, Matrices(c, "key", dtype, heads));
  const Dims dims{c.T("query")->type.dims[0], heads, scores->type.dims[1], scores->type.dims[2]};
  scores = b.Mul(b.Reshape(scores, dims), b.Const(dtype, c.Static("scale")));
  scores = b.Add(scores, b.Broadcast(b.Convert(c.T("attn_bias"), dtype), dims));
  Op* lowest = b.Limit(dtype, false);
  if (c.Bool("is_causal"))
    scores = b.Select(b.Compare("LE", b.Iota(DType::kI64, dims, 3), b.Iota(DType::kI64, dims, 2)),
                      scores, lowest);
  Op* maximum = b.Reduce(scores, "maximum", {3}, true);
  Op* e = b.Unary(OpCode::kExp, b.Sub(scores, maximum));
  Op* p = b.Div(e, b.Reduce(e, "add", {3}, true));
  return b.Select(b.Compare("EQ", maximum, lowest), b.Const(dtype, 0), p);
}

// The softmax's gradient, summed to the bias's shape. Unlike the other gradients it takes memory in
// proportion to the lengths' product, as the bias often does.
void LowerAttentionBiasGradient(Context& c) {
  auto& b = c.b;
  const DType dtype = ComputeType(c.T("query")->type.dtype);
  const int64_t heads = c.T("query")->type.dims[1];
  Op* p = Probabilities(c, dtype);
  Op* grad_out = Matrices(c, "grad_out", dtype, heads);
  Op* grad =
      b.Reshape(TimesTransposed(c, grad_out, Matrices(c, "value", dtype, heads)), p->type.dims);
  Op* weighted = b.Mul(p, grad);
  Op* result = b.Sub(weighted, b.Mul(p, b.Reduce(weighted, "add", {3}, true)));
  const Dims& wanted = c.Result().dims;
  Dims summed;
  const size_t missing = 4 - wanted.size();
  for (size_t d = 0; d < 4; ++d) {
    if (d < missing || (wanted[d - missing] == 1 && p->type.dims[d] != 1))
      summed.push_back(static_cast<int64_t>(d));
  }
  if (!summed.empty()) result = b.Reduce(result, "add", summed, true);
  c.Return({b.Reshape(b.Convert(result, c.Result().dtype), wanted)});
}

}  // namespace

void AddAttention(Table& t) {
  t.Add("neuron::attention", LowerAttention).static_args = {"scale", "dropout_p"};
  t.Add("neuron::attention_bias_gradient", LowerAttentionBiasGradient).static_args = {"scale"};
  t.Add("neuron::attention_backward", LowerAttentionBackward).static_args = {"scale", "dropout_p"};
}

}  // namespace neuron::lowering
