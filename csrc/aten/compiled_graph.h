// A compiled graph as torch calls it: tensors in, tensors out.
#pragma once

#include <ATen/core/TensorBody.h>

#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "platform/executable.h"

namespace neuron::aten {

class CompiledGraph {
 public:
  // random_count: counters that a run takes from the device's generator; the graph's two scalars
  // are then its seed and the first of them.
  CompiledGraph(const ir::Graph& graph, int64_t random_count);

  // inputs: one per parameter, on one core, with the dtypes, shapes and strides of the graph
  // (others raise an error that names the input). Returns fresh tensors; runs asynchronously on the
  // current stream.
  std::vector<at::Tensor> Run(const std::vector<at::Tensor>& inputs) const;
  std::string Describe() const { return executable_->Describe(); }
  const platform::Executable& executable() const { return *executable_; }
  // Of all inputs and of all outputs, in memory; an input's repeated elements count once.
  int64_t input_bytes() const { return Bytes(inputs_); }
  int64_t output_bytes() const { return Bytes(outputs_); }

 private:
  struct Spec {
    at::ScalarType dtype;
    std::vector<int64_t> sizes, strides;
  };
  static int64_t Bytes(const std::vector<Spec>& specs);
  std::shared_ptr<const platform::Executable> executable_;
  std::shared_ptr<const platform::LaunchContext> context_;
  std::vector<Spec> inputs_, outputs_;
  uint64_t random_count_;
};

}  // namespace neuron::aten
