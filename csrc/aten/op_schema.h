// What the boxed kernel needs to know of an operator's schema, worked out once at registration.
#pragma once

#include <ATen/core/function_schema.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

#include "lowering/table.h"

namespace neuron::aten {

enum class ArgKind : uint8_t {
  kTensor,      // Tensor or Tensor?
  kTensorList,  // Tensor[] or Tensor?[]
  kNumber,      // Scalar, float, or an int that is a run-time number; optional or not
  kInt,
  kIntList,  // or bools
  kBool,
  kString,
  kDtype,
  kDevice,
  kGenerator,
  kNumberList,  // float[] or bool[]
  kIgnored,     // layout, memory format, pin_memory: they are in the results' metadata
};

struct ArgSpec {
  std::string name;
  ArgKind kind = ArgKind::kIgnored;
  bool written = false;      // (a!)
  bool output_only = false;  // an out= argument: never read
  bool is_static = false;    // its value is part of the key
};

struct OpSchema {
  std::string name;  // "aten::add.Tensor"
  std::vector<ArgSpec> args;
  std::vector<int> returned_args;  // per return: the written argument that it is, or -1: allocated
  bool writes = false;             // any argument

  // Throws kUnsupported for a schema with kinds that the boxed kernel does not handle. Library
  // calls may also write into lists and return what is no tensor.
  static OpSchema Analyze(const c10::FunctionSchema& schema, const lowering::Entry& entry,
                          bool library);
};

}  // namespace neuron::aten
