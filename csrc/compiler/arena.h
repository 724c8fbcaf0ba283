// The temporaries of an executable: values that live from one step to another, in one block of
// scratch memory.
#pragma once

#include <cstdint>
#include <vector>

#include "platform/host/executable.h"

namespace neuron::compiler {

class Arena {
 public:
  // Room for `bytes`, at an offset of its own until Pack.
  int64_t Add(int64_t bytes);

  // Gives temporaries whose lives (first to last step that names them) do not meet the same memory,
  // and moves the steps' operands of index `operand` there. Returns the block's size in bytes.
  int64_t Pack(std::vector<host::Step>& steps, int operand);

 private:
  struct Temporary {
    int64_t offset = 0, size = 0;  // before packing
    int first = 1 << 30, last = -1;
    int64_t packed = 0;
  };
  Temporary& At(int64_t offset);
  int64_t Place();

  std::vector<Temporary> temporaries_;  // by offset
  int64_t end_ = 0;
};

}  // namespace neuron::compiler
