// Where in the user's Python code an op was called.
#pragma once

#include <string>

namespace neuron::aten {

// "train.py:12 in step": the innermost frame of the calling thread outside torch and torch_neuronx.
// Empty if there is none, or no interpreter.
std::string PythonCallSite();

// Set by csrc/python.
void SetCallSiteProvider(std::string (*provider)());

}  // namespace neuron::aten
