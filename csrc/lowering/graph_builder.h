// Builds a graph of many ops, call by call, through the lowering table: how torch.compile's graphs
// come in.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lowering/context.h"

namespace neuron::lowering {

class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name) : graph_(std::move(name)) {}

  Op* AddInput(ir::Type type, Dims strides) {
    return graph_.AddParameter(std::move(type), std::move(strides));
  }
  // A number that is part of the code; dtype f64, i64 or b8.
  ScalarArg Number(DType dtype, double value, int64_t integer);

  // Lowers one call of `op` ("add.Tensor"); nullopt: a result that nobody wants, null in what it
  // returns. Throws kUnsupported naming the op if the table has no
  // entry.
  std::vector<Op*> Call(const std::string& op, std::vector<std::pair<std::string, Arg>> args,
                        const std::vector<std::optional<ir::Type>>& results, DType default_float);
  void AddOutput(Op* value, Dims strides) { graph_.AddOutput(value, std::move(strides)); }

  // Drops what no output needs; the builder must not be used for more calls afterwards.
  ir::Graph& Finish();

  // Counters that one run takes from the generator, as the same ops one by one would. Not 0: the
  // graph's two run-time scalars are the generator's seed and the first counter.
  int64_t random_count() const { return random_count_; }

 private:
  ir::Graph graph_;
  Op* seed_ = nullptr;
  Op* first_counter_ = nullptr;
  int64_t random_count_ = 0;
};

}  // namespace neuron::lowering
