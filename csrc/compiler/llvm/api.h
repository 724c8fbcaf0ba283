// The C interface of libneuron_codegen, the only library that holds LLVM. It is loaded at the first
// kernel that no cache has; text in, position-independent machine code out.
#pragma once

#include <stddef.h>

extern "C" {

struct neuron_codegen_result {
  char* code;  // machine code and its constants, no relocations left; null on failure
  size_t size;
  size_t entry;   // offset of the kernel's first instruction
  char* error;    // null on success
  char* llvm_ir;  // texts of the stages, null unless asked for
  char* assembly;
};

// kernel: text of the loop IR (compiler/loop_ir.h), not necessarily terminated. isa: portable,
// avx2, avx512 or avx512_bf16. Thread-safe. Free the result with neuron_codegen_free.
__attribute__((visibility("default"))) neuron_codegen_result
neuron_codegen_compile(const char* kernel, size_t kernel_size, const char* isa, int want_text);
__attribute__((visibility("default"))) void neuron_codegen_free(neuron_codegen_result* result);

}  // extern "C"
