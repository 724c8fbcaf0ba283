// TORCH_NEURONX_DEBUG_DIR: every stage of a graph's compile as a text file.
#pragma once

#include <string>

namespace neuron::compiler {

// One graph's folder, <TORCH_NEURONX_DEBUG_DIR>/<graph name>; does nothing if the variable is
// empty. Files of a graph of the same name, of an earlier process, are replaced.
class Stages {
 public:
  explicit Stages(const std::string& graph_name);
  bool on() const { return !folder_.empty(); }
  // file: "1_lowered.ir". Throws kInvalidArgument naming the file if it cannot be written.
  void Write(const std::string& file, const std::string& text) const;

 private:
  std::string folder_;
};

}  // namespace neuron::compiler
