// Comparisons, logic, selection.
#include "lowering/promotion.h"
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

constexpr char kEq[] = "EQ", kNe[] = "NE", kLt[] = "LT", kLe[] = "LE", kGt[] = "GT", kGe[] = "GE";

template <const char* kDirection>
void LowerCompareTensor(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("other")).Get();
  c.Return({c.b.Compare(kDirection, ToCompute(c, c.T("self"), common),
                        ToCompute(c, c.T("other"), common))});
}

// The number is rounded to the common dtype first: 0.1 compares equal to a bf16 0.1.
template <const char* kDirection>
void LowerCompareScalar(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Scalar("other")).Get();
  Op* other = c.b.Convert(c.S("other", common), ComputeType(common));
  c.Return({c.b.Compare(kDirection, ToCompute(c, c.T("self"), common), other)});
}

template <OpCode kCode>
void LowerLogical(Context& c) {
  c.Return({c.b.Binary(kCode, c.b.Convert(c.T("self"), DType::kBool),
                       c.b.Convert(c.T("other"), DType::kBool))});
}

void LowerLogicalNot(Context& c) {
  c.Return({c.b.Unary(OpCode::kNot, c.b.Convert(c.T("self"), DType::kBool))});
}

void LowerIsNan(Context& c) {
  Op* x = c.b.Convert(c.T("self"), ComputeType(c.T("self")->type.dtype));
  c.Return({c.b.Compare("NE", x, x)});
}

void LowerWhere(Context& c) {
  const DType common =
      ResultType(c.default_float()).Add(c.Tensor("self")).Add(c.Tensor("other")).Get();
  Op* condition = c.b.Convert(c.T("condition"), DType::kBool);
  c.Return(
      {c.b.Select(condition, c.b.Convert(c.T("self"), common), c.b.Convert(c.T("other"), common))});
}

void LowerMaskedFill(Context& c) {
  const DType dtype = c.T("self")->type.dtype;
  c.Return({c.b.Select(c.b.Convert(c.T("mask"), DType::kBool), c.S("value", dtype), c.T("self"))});
}

void LowerMaskedFillTensor(Context& c) {
  const DType dtype = c.T("self")->type.dtype;
  c.Return({c.b.Select(c.b.Convert(c.T("mask"), DType::kBool), c.b.Convert(c.T("value"), dtype),
                       c.T("self"))});
}

// Every element against every test element: meant for few of the latter.
void LowerIsIn(Context& c) {
  auto& b = c.b;
  Op* elements = c.T("elements");
  Op* tests = c.T("test_elements");
  const DType type = Promote(elements->type.dtype, tests->type.dtype);
  Dims pairs = elements->type.dims;
  pairs.push_back(1);
  const Dims flat{tests->type.NumElements()};
  Op* left = b.Reshape(b.Convert(elements, type), pairs);
  pairs.back() = flat[0];
  Op* equal = b.Compare("EQ", b.Broadcast(left, pairs),
                        b.Broadcast(b.Reshape(b.Convert(tests, type), flat), pairs));
  Op* found = b.Reduce(equal, "or", {static_cast<int64_t>(pairs.size()) - 1});
  c.Return({c.Bool("invert") ? b.Unary(OpCode::kNot, found) : found});
}

}  // namespace

void AddComparisons(Table& t) {
  t.Add("eq.Tensor", LowerCompareTensor<kEq>);
  t.Add("ne.Tensor", LowerCompareTensor<kNe>);
  t.Add("lt.Tensor", LowerCompareTensor<kLt>);
  t.Add("le.Tensor", LowerCompareTensor<kLe>);
  t.Add("gt.Tensor", LowerCompareTensor<kGt>);
  t.Add("ge.Tensor", LowerCompareTensor<kGe>);
  t.Add("eq.Scalar", LowerCompareScalar<kEq>);
  t.Add("ne.Scalar", LowerCompareScalar<kNe>);
  t.Add("lt.Scalar", LowerCompareScalar<kLt>);
  t.Add("le.Scalar", LowerCompareScalar<kLe>);
  t.Add("gt.Scalar", LowerCompareScalar<kGt>);
  t.Add("ge.Scalar", LowerCompareScalar<kGe>);
  t.Add("logical_and", LowerLogical<OpCode::kAnd>);
  t.Add("logical_or", LowerLogical<OpCode::kOr>);
  t.Add("logical_xor", LowerLogical<OpCode::kXor>);
  t.Add("logical_not", LowerLogicalNot);
  t.Add("isnan", LowerIsNan);
  t.Add("where.self", LowerWhere).moves_only = true;
  t.Add("masked_fill.Scalar", LowerMaskedFill);
  t.Add("masked_fill.Tensor", LowerMaskedFillTensor);
  t.Add("isin.Tensor_Tensor", LowerIsIn);
}

}  // namespace neuron::lowering
