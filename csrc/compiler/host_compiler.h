// platform::Compiler of the platform `host`.
#pragma once

#include "platform/compiler.h"

namespace neuron::compiler {

// One per process.
platform::Compiler* HostCompiler();

}  // namespace neuron::compiler
