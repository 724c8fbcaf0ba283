// Matrix products.
#include "lowering/table.h"

namespace neuron::lowering {
namespace {

Op* Dot(Context& c, Op* lhs, Op* rhs, bool batched, Op* addend = nullptr, double alpha = 1,
        double beta = 1) {
  const int64_t first = batched ? 1 : 0;
  ir::Type type{lhs->type.dtype, {}};
  if (batched) type.dims.push_back(lhs->type.dims[0]);
  const bool lhs_is_vector = lhs->type.rank() == first + 1;
  const bool rhs_is_vector = rhs->type.rank() == first + 1;
  if (!lhs_is_vector) type.dims.push_back(lhs->type.dims[first]);
  if (!rhs_is_vector) type.dims.push_back(rhs->type.dims[first + 1]);
  std::vector<Op*> operands{lhs, rhs};
  std::map<std::string, ir::Attribute, std::less<>> attributes{
      {"lhs_batch", batched ? Dims{0} : Dims{}},
      {"rhs_batch", batched ? Dims{0} : Dims{}},
      {"lhs_contract", Dims{lhs_is_vector ? first : first + 1}},
      {"rhs_contract", Dims{first}}};
  if (alpha != 1) attributes.emplace("alpha", alpha);
  if (addend != nullptr && beta != 0) {
    operands.push_back(c.b.Broadcast(addend, type.dims));
    if (beta != 1) attributes.emplace("beta", beta);
  }
  return c.b.graph().Add(OpCode::kDotGeneral, std::move(type), std::move(operands),
                         std::move(attributes));
}

void LowerMm(Context& c) { c.Return({Dot(c, c.T("self"), c.T("mat2"), false)}); }
void LowerBmm(Context& c) { c.Return({Dot(c, c.T("self"), c.T("mat2"), true)}); }
void LowerMv(Context& c) { c.Return({Dot(c, c.T("self"), c.T("vec"), false)}); }
void LowerDot(Context& c) { c.Return({Dot(c, c.T("self"), c.T("tensor"), false)}); }

// beta * self + alpha * (lhs . rhs), rounded once.
template <const char* const* kNames, bool kBatched>
void LowerAddProduct(Context& c) {
  c.Return({Dot(c, c.T(kNames[0]), c.T(kNames[1]), kBatched, c.T("self"), c.Static("alpha"),
                c.Static("beta"))});
}

constexpr const char* kAddmm[] = {"mat1", "mat2"};
constexpr const char* kBaddbmm[] = {"batch1", "batch2"};
constexpr const char* kAddmv[] = {"mat", "vec"};

}  // namespace

void AddMatmuls(Table& t) {
  t.Add("mm", LowerMm);
  t.Add("bmm", LowerBmm);
  t.Add("mv", LowerMv);
  t.Add("dot", LowerDot);
  t.Add("addmm", LowerAddProduct<kAddmm, false>).static_args = {"beta", "alpha"};
  t.Add("baddbmm", LowerAddProduct<kBaddbmm, true>).static_args = {"beta", "alpha"};
  t.Add("addmv", LowerAddProduct<kAddmv, false>).static_args = {"beta", "alpha"};
}

}  // namespace neuron::lowering
