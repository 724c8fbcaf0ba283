// What a platform's compiler makes and a platform's queue runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace neuron::platform {

// An address in a core's HBM. Opaque above csrc/platform: it may be compared and offset inside one
// allocation, never dereferenced. 0 is no address.
using DeviceAddress = uint64_t;

// Operands of a launch, in this order: the graph's parameters, then its outputs, then one scratch
// block of scratch_bytes() if that is not 0. Scalars are the graph's run-time scalars as 64-bit
// words: an f64 by its bits, an i64 by value (bool: 0 or 1).
class Executable {
 public:
  virtual ~Executable() = default;
  virtual int num_operands() const = 0;  // without the scratch block
  virtual int num_scalars() const = 0;
  virtual int64_t scratch_bytes() const = 0;
  // Rough time of one run on an idle core in nanoseconds; decides what may run inline.
  virtual int64_t EstimatedNanoseconds() const = 0;
  // True if a run can fail on its data (an index out of range): such launches carry their call
  // site.
  virtual bool CanFail() const = 0;
  // Text for people: kernels and library calls, one line each.
  virtual std::string Describe() const = 0;
  // Keys under which the cache of executables holds what this one is made of. Waits for what is
  // still being compiled and stored; leaves out what failed or was not stored.
  virtual std::vector<std::string> CacheKeys() const = 0;
};

// Names a launch in error messages and profiles.
struct LaunchContext {
  std::string op;         // "aten::add.Tensor"
  std::string arguments;  // "f32[4,8], f32[8]"
  std::string call_site;  // "train.py:12 in step", empty when not captured
};

}  // namespace neuron::platform
