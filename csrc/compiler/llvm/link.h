// Flattens one object file into a blob without relocations.
#pragma once

#include <llvm/ADT/StringRef.h>

#include <cstddef>
#include <string>

namespace neuron::codegen {

struct Blob {
  std::string bytes;
  size_t entry = 0;
};

// Lays the allocated sections of an x86-64 ELF object out after each other and applies its
// PC-relative relocations. Throws kInternal for any other relocation: generated code calls nothing
// by name.
Blob Flatten(llvm::StringRef object, llvm::StringRef entry_symbol);

}  // namespace neuron::codegen
