// What a platform's compiler makes and a platform's queue runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/dtype.h"

namespace neuron::platform {

// An address in a core's HBM. Opaque above csrc/platform: it may be compared and offset inside one
// allocation, never dereferenced. 0 is no address.
using DeviceAddress = uint64_t;

// What one step of an executable does, counted from its shapes.
struct StepWork {
  std::string name;           // of the kernel or of the engine: "norm", "gemm"
  std::string fused;          // a kernel's operations; an engine's tensors, "f32[1,8,64] ..."
  bool engine = false;        // a hand-written engine rather than a generated kernel
  DType dtype = DType::kF32;  // of the arithmetic
  int64_t bytes_read = 0;     // from HBM, each element once
  int64_t bytes_written = 0;
  int64_t flops = 0;            // two per multiply-add
  int64_t transcendentals = 0;  // evaluations of exp, tanh, erf, ...
};

struct StepTime {
  int64_t runs = 0;
  int64_t nanoseconds = 0;        // of all runs
  int64_t least_nanoseconds = 0;  // of one run
};

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
  // One per step, in the order in which they run.
  virtual std::vector<StepWork> Work() const = 0;
  // Time that this process spent generating the code of its steps, 0 for code from a cache. Waits
  // for what is still being generated.
  virtual int64_t CompileNanoseconds() const = 0;
  // Steps whose code is still being generated.
  virtual int64_t PendingSteps() const = 0;
  // From the next run on, times each step (or no longer); what was measured before is forgotten.
  virtual void MeasureSteps(bool on) const = 0;
  // One per step; zeros where nothing was measured. For runs that have ended.
  virtual std::vector<StepTime> StepTimes() const = 0;
};

// Names a launch in error messages and profiles.
struct LaunchContext {
  std::string op;         // "aten::add.Tensor"
  std::string arguments;  // "f32[4,8], f32[8]"
  std::string call_site;  // "train.py:12 in step", empty when not captured
};

}  // namespace neuron::platform
