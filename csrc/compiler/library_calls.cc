#include "compiler/library_calls.h"

#include <algorithm>

#include "platform/host/library.h"
#include "support/error.h"

namespace neuron::compiler {

using host::LibraryStep;
using host::TensorDesc;
using ir::Dims;
using ir::Op;
using ir::OpCode;

namespace {

TensorDesc Describe(const Place& place) { return {place.dtype, place.dims, place.strides}; }

// [batch, rows, columns] of a matrix operand whose single dimension per role is given (-1: absent,
// size 1).
TensorDesc Matrix(const Place& place, int64_t batch, int64_t rows, int64_t columns) {
  TensorDesc out{place.dtype, {}, {}};
  for (int64_t d : {batch, rows, columns}) {
    out.dims.push_back(d < 0 ? 1 : place.dims[d]);
    out.strides.push_back(d < 0 ? 0 : place.strides[d]);
  }
  return out;
}

int64_t Single(const Dims& dims, const char* role) {
  if (dims.size() > 1) {
    NEURON_THROW(kUnsupported, "dot_general with ", dims.size(), " ", role,
                 " dimensions: reshape to one first");
  }
  return dims.empty() ? -1 : dims[0];
}

// The dimension that is neither batch nor contracted.
int64_t Free(int rank, int64_t batch, int64_t contract) {
  int64_t free = -1;
  for (int64_t d = 0; d < rank; ++d) {
    if (d == batch || d == contract) continue;
    if (free >= 0)
      NEURON_THROW(kUnsupported, "dot_general with several free dimensions: reshape to one first");
    free = d;
  }
  return free;
}

void DescribeDot(const Op& op, const std::vector<Place>& places, LibraryStep& step) {
  const int64_t lhs_batch = Single(op.Ints("lhs_batch"), "batch");
  const int64_t rhs_batch = Single(op.Ints("rhs_batch"), "batch");
  const int64_t lhs_contract = Single(op.Ints("lhs_contract"), "contracted");
  const int64_t rhs_contract = Single(op.Ints("rhs_contract"), "contracted");
  const int64_t m = Free(op.operands[0]->type.rank(), lhs_batch, lhs_contract);
  const int64_t n = Free(op.operands[1]->type.rank(), rhs_batch, rhs_contract);
  step.name = "gemm";
  step.tensors.push_back(Matrix(places[0], lhs_batch, m, lhs_contract));
  step.tensors.push_back(Matrix(places[1], rhs_batch, rhs_contract, n));
  int64_t next = 0;
  const int64_t batch = lhs_batch < 0 ? -1 : next++;
  const int64_t row = m < 0 ? -1 : next++;
  const int64_t column = n < 0 ? -1 : next++;
  for (size_t i = 2; i < places.size(); ++i)
    step.tensors.push_back(Matrix(places[i], batch, row, column));
  step.attributes.doubles = {op.Has("alpha") ? op.Double("alpha") : 1.0,
                             op.Has("beta") ? op.Double("beta") : 1.0};
}

void DescribeConvolution(const Op& op, const std::vector<Place>& places, LibraryStep& step) {
  step.name = "convolution";
  for (const Place& place : places) step.tensors.push_back(Describe(place));
  auto& ints = step.attributes.ints;
  ints = {op.Int("transposed"), op.Int("groups"), static_cast<int64_t>(op.Ints("stride").size())};
  for (const char* name : {"stride", "padding", "dilation", "output_padding"}) {
    ints.insert(ints.end(), op.Ints(name).begin(), op.Ints(name).end());
  }
}

// Attributes as a convolution's, without output padding.
void DescribeWeightGrad(const Op& op, const std::vector<Place>& places, LibraryStep& step) {
  step.name = "convolution_weight_grad";
  for (const Place& place : places) step.tensors.push_back(Describe(place));
  auto& ints = step.attributes.ints;
  ints = {0, op.Int("groups"), static_cast<int64_t>(op.Ints("stride").size())};
  for (const char* name : {"stride", "padding", "dilation"})
    ints.insert(ints.end(), op.Ints(name).begin(), op.Ints(name).end());
}

bool IsAttention(const Op& op) {
  return op.code == OpCode::kAttention || op.code == OpCode::kAttentionLse ||
         op.code == OpCode::kAttentionGrad;
}

// Which result of a call an attention op is, as a bit: those of one call are in this order.
int64_t ResultBit(const Op& op) {
  if (op.code == OpCode::kAttentionLse) return 1;
  if (op.code == OpCode::kAttention) return 2;
  return op.String("of") == "q" ? 1 : op.String("of") == "k" ? 2 : 4;
}

// The call's ints: is_causal, whether there is a bias, the results that are wanted (sum of bits);
// doubles: scale, dropout (-1: none, and no operand for seed and offset).
void DescribeAttention(const Op& op, const std::vector<Place>& places,
                       const std::vector<const Op*>& results, LibraryStep& step) {
  const bool gradient = op.code == OpCode::kAttentionGrad;
  step.name = gradient ? "attention_grad" : "attention";
  for (const Place& place : places) step.tensors.push_back(Describe(place));
  const bool drops = op.Has("dropout");
  const size_t without_bias = (gradient ? 6 : 3) + (drops ? 1 : 0);
  int64_t wanted = 0;
  for (const Op* result : results) wanted += ResultBit(*result);
  step.attributes.ints = {op.Int("is_causal"), op.operands.size() > without_bias, wanted};
  step.attributes.doubles = {op.Double("scale"), drops ? op.Double("dropout") : -1};
}

}  // namespace

bool IsLibraryOp(OpCode code) {
  switch (code) {
    case OpCode::kDotGeneral:
    case OpCode::kConvolution:
    case OpCode::kConvolutionWeightGrad:
    case OpCode::kAttention:
    case OpCode::kAttentionLse:
    case OpCode::kAttentionGrad:
    case OpCode::kSort:
    case OpCode::kArgSort:
    case OpCode::kCumSum:
    case OpCode::kNonzero:
      return true;
    default:
      return false;
  }
}

std::vector<const Op*> ComputedTogether(const ir::Graph& graph, const Op& op) {
  if (!IsAttention(op)) return {&op};
  std::vector<const Op*> results;
  for (const auto& owned : graph.ops()) {
    const Op* other = owned.get();
    if (!IsAttention(*other) || other->operands != op.operands) continue;
    if ((other->code == OpCode::kAttentionGrad) != (op.code == OpCode::kAttentionGrad)) continue;
    const auto same = [&](const char* name) {
      return other->Has(name) == op.Has(name) &&
             (!op.Has(name) || other->attributes.at(name) == op.attributes.at(name));
    };
    if (!same("is_causal") || !same("scale") || !same("dropout")) continue;
    // Of equal values only one has a place here.
    const bool repeated = std::any_of(results.begin(), results.end(), [&](const Op* have) {
      return ResultBit(*have) == ResultBit(*other);
    });
    if (!repeated || other == &op) {
      std::erase_if(results, [&](const Op* have) { return ResultBit(*have) == ResultBit(*other); });
      results.push_back(other);
    }
  }
  std::sort(results.begin(), results.end(),
            [](const Op* a, const Op* b) { return ResultBit(*a) < ResultBit(*b); });
  return results;
}

LibraryStep MakeLibraryStep(const Op& op, const std::vector<Place>& places,
                            const std::vector<const Op*>& results) {
  LibraryStep step;
  for (const Place& place : places) step.operands.push_back({place.operand, place.byte_offset});
  switch (op.code) {
    case OpCode::kDotGeneral:
      DescribeDot(op, places, step);
      break;
    case OpCode::kConvolution:
      DescribeConvolution(op, places, step);
      break;
    case OpCode::kConvolutionWeightGrad:
      DescribeWeightGrad(op, places, step);
      break;
    case OpCode::kAttention:
    case OpCode::kAttentionLse:
    case OpCode::kAttentionGrad:
      DescribeAttention(op, places, results, step);
      break;
    case OpCode::kNonzero:
      step.name = "nonzero";
      for (const Place& place : places) step.tensors.push_back(Describe(place));
      break;
    case OpCode::kSort:
    case OpCode::kArgSort:
      step.name = op.code == OpCode::kSort ? "sort" : "argsort";
      for (const Place& place : places) step.tensors.push_back(Describe(place));
      step.attributes.ints = {op.Int("dim"), op.Int("descending")};
      break;
    default:
      step.name = std::string(ir::Info(op.code).name) + "_" + op.String("kind");
      for (const Place& place : places) step.tensors.push_back(Describe(place));
      step.attributes.ints = {op.Int("dim")};
  }
  step.fn = host::FindLibraryFunction(step.name);
  return step;
}

int64_t EstimateLibraryNanoseconds(const Op& op) {
  const int64_t out = op.type.NumElements();
  int64_t per_element = 20;
  if (op.code == OpCode::kDotGeneral) {
    const int64_t k =
        op.Ints("lhs_contract").empty() ? 1 : op.operands[0]->type.dims[op.Ints("lhs_contract")[0]];
    per_element = 1 + k / 32;
  } else if (op.code == OpCode::kConvolution) {
    const auto& weight = op.operands[1]->type.dims;
    per_element = 1 + op.operands[1]->type.NumElements() /
                          std::max<int64_t>(1, weight.empty() ? 1 : weight[0]) / 16;
  } else if (op.code == OpCode::kAttention || op.code == OpCode::kAttentionLse) {
    per_element = 1 + op.operands[1]->type.dims[2] / 16;
  } else if (op.code == OpCode::kConvolutionWeightGrad) {
    const auto& grad = op.operands[1]->type;
    per_element = 1 + grad.NumElements() / std::max<int64_t>(1, grad.dims[1]) / 16;
  } else if (op.code == OpCode::kAttentionGrad) {
    per_element = 1 + op.operands[4]->type.dims[2] / 6;
  }
  return 500 + out * per_element;
}

}  // namespace neuron::compiler
