#include "ir/graph.h"

namespace neuron::ir {

Graph Parse(std::string_view text) {
  (void)text;
  NEURON_THROW(kUnsupported, "the text form is not read yet");
}

}  // namespace neuron::ir
