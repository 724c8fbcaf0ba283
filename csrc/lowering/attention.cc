// Fused attention. `attention` and `attention_backward` are the device's own ops behind PyTorch's
// overrideable ones (csrc/aten/own_ops.cc has their schemas).
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

}  // namespace

void AddAttention(Table& t) {
  t.Add("neuron::attention", LowerAttention).static_args = {"scale", "dropout_p"};
  t.Add("neuron::attention_backward", LowerAttentionBackward).static_args = {"scale", "dropout_p"};
}

}  // namespace neuron::lowering
