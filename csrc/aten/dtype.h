// c10::ScalarType <-> neuron::DType.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>

#include "support/dtype.h"

namespace neuron::aten {

// nullopt for what the device does not compute with (quantised, float8, ...).
constexpr std::optional<DType> ToDType(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Bool:
      return DType::kBool;
    case c10::ScalarType::Byte:
      return DType::kU8;
    case c10::ScalarType::Char:
      return DType::kI8;
    case c10::ScalarType::UInt16:
      return DType::kU16;
    case c10::ScalarType::Short:
      return DType::kI16;
    case c10::ScalarType::UInt32:
      return DType::kU32;
    case c10::ScalarType::Int:
      return DType::kI32;
    case c10::ScalarType::UInt64:
      return DType::kU64;
    case c10::ScalarType::Long:
      return DType::kI64;
    case c10::ScalarType::Half:
      return DType::kF16;
    case c10::ScalarType::BFloat16:
      return DType::kBF16;
    case c10::ScalarType::Float:
      return DType::kF32;
    case c10::ScalarType::Double:
      return DType::kF64;
    case c10::ScalarType::ComplexFloat:
      return DType::kC64;
    case c10::ScalarType::ComplexDouble:
      return DType::kC128;
    default:
      return std::nullopt;
  }
}

constexpr c10::ScalarType ToScalarType(DType dtype) {
  constexpr c10::ScalarType kTypes[kNumDTypes] = {
      c10::ScalarType::Bool,   c10::ScalarType::Byte,         c10::ScalarType::Char,
      c10::ScalarType::UInt16, c10::ScalarType::Short,        c10::ScalarType::UInt32,
      c10::ScalarType::Int,    c10::ScalarType::UInt64,       c10::ScalarType::Long,
      c10::ScalarType::Half,   c10::ScalarType::BFloat16,     c10::ScalarType::Float,
      c10::ScalarType::Double, c10::ScalarType::ComplexFloat, c10::ScalarType::ComplexDouble};
  return kTypes[static_cast<int>(dtype)];
}

}  // namespace neuron::aten
