// The rules of each operation beyond the number of its operands and the kinds of its attributes,
// which Verify checks first. Each function throws kInternal with the operation's line and the
// broken rule.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace neuron::ir {

// Throws unless `ok`: the line of the operation, then the rule.
template <typename... Args>
void Require(const Op& op, bool ok, const Args&... rule) {
  if (!ok) [[unlikely]]
    NEURON_THROW(kInternal, "invalid graph: ", ToString(op), ": ", rule...);
}

// Sets of dtypes.
inline constexpr unsigned kBools = 1, kInts = 2, kFloats = 4, kComplexes = 8;
void RequireDType(const Op& op, const Type& type, unsigned allowed, std::string_view what);

// The result has this dtype and these dims.
void RequireResult(const Op& op, const Type& expected);
// 0 <= dim < rank, which no dim satisfies for rank 0.
void RequireDim(const Op& op, int64_t dim, int rank, std::string_view attribute);
// Each in [0, rank), none twice.
void RequireDims(const Op& op, const Dims& dims, int rank, std::string_view attribute);
// One entry for each of `rank` dimensions.
void RequireCount(const Op& op, std::string_view attribute, size_t count);
void RequireOneOf(const Op& op, std::string_view attribute,
                  std::initializer_list<std::string_view> allowed);
// The int attribute is 0 or 1.
void RequireFlag(const Op& op, std::string_view attribute);

// parameter, scalar, constant, shape_constant, iota
void VerifySource(const Op& op);
// Conversions and elementwise operations.
void VerifyElementwise(const Op& op);
// broadcast_in_dim ... reverse
void VerifyShape(const Op& op);
// take ... scatter_nd
void VerifyIndirect(const Op& op);
// reduce, cumulative, sort, argsort
void VerifyReduction(const Op& op);
// dot_general, convolution, attention, attention_lse, nonzero, rng_bits
void VerifyEngine(const Op& op);

}  // namespace neuron::ir
