// Definitions of operations that StableHLO has no operation for, in terms of simpler operations.
#pragma once

#include <optional>
#include <string>

#include "ir/builder.h"
#include "ir/graph.h"

namespace neuron::ir::hlo {

struct Decomposition {
  explicit Decomposition(std::string name) : graph(std::move(name)) {}
  // A parameter for each operand of the operation, one output: the result.
  Graph graph;
  // The name of the stablehlo.composite, or empty: written in place.
  std::string composite;
  std::string attributes;  // of the composite, as text: "scale = 0.5 : f64"
};

// Nothing if StableHLO has the operation as it is. Throws kUnsupported naming the operation for a
// dtype that it has no definition for.
std::optional<Decomposition> Decompose(const Op& op);

// --- Parts of it, by family. `x`: the operands, of f32 or f64 in the first two -----------------

Op* DecomposeFunction(Builder& b, const Op& op, const std::vector<Op*>& x);  // erf, lgamma...
Op* DecomposeCumulative(Builder& b, const Op& op, Op* x);
Op* DecomposeRng(Builder& b, const Op& op, const std::vector<Op*>& x);
Op* DecomposeAttention(Builder& b, const Op& op, const std::vector<Op*>& x);
Op* DecomposeNonzero(Builder& b, const Op& op, Op* x);

}  // namespace neuron::ir::hlo
