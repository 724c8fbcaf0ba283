// Fused attention. `attention` is the device's own op behind PyTorch's overrideable one:
// (query, key, value, attn_bias?, is_causal, scale) -> (output, logsumexp).
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

void LowerAttention(Context& c) {
  std::vector<Op*> operands{c.T("query"), c.T("key"), c.T("value")};
  std::vector<Op*> scores{c.T("query"), c.T("key")};
  if (Op* bias = c.OptionalT("attn_bias")) {
    const Dims& q = c.T("query")->type.dims;
    bias = c.b.Broadcast(bias, {q[0], q[1], q[2], c.T("key")->type.dims[2]});
    operands.push_back(bias);
    scores.push_back(bias);
  }
  const std::map<std::string, ir::Attribute, std::less<>> attributes{
      {"is_causal", static_cast<int64_t>(c.Bool("is_causal"))}, {"scale", c.Static("scale")}};
  Op* out = c.b.graph().Add(OpCode::kAttention, c.Result(0), operands, attributes);
  Op* lse = c.b.graph().Add(OpCode::kAttentionLse, c.Result(1), scores, attributes);
  c.Return({out, lse});
}

}  // namespace

void AddAttention(Table& t) { t.Add("neuron::attention", LowerAttention).static_args = {"scale"}; }

}  // namespace neuron::lowering
