// Element types of the device, shared by every layer. Names in text form: b8, u8, i64, bf16, f32...
#pragma once

#include <cstdint>
#include <string_view>

#include "support/error.h"

namespace neuron {

enum class DType : uint8_t {
  kBool,  // one byte, 0 or 1
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,   // two f32
  kC128,  // two f64
};
inline constexpr int kNumDTypes = 15;

constexpr int ByteSize(DType t) {
  constexpr int kSizes[kNumDTypes] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16};
  return kSizes[static_cast<int>(t)];
}
constexpr bool IsFloat(DType t) { return t >= DType::kF16 && t <= DType::kF64; }
constexpr bool IsComplex(DType t) { return t >= DType::kC64; }
// True for bool and every integer.
constexpr bool IsIntegral(DType t) { return t <= DType::kI64; }
constexpr bool IsSigned(DType t) {
  return t == DType::kI8 || t == DType::kI16 || t == DType::kI32 || t == DType::kI64;
}

constexpr std::string_view Name(DType t) {
  constexpr std::string_view kNames[kNumDTypes] = {"b8",   "u8",  "i8",  "u16", "i16",
                                                   "u32",  "i32", "u64", "i64", "f16",
                                                   "bf16", "f32", "f64", "c64", "c128"};
  return kNames[static_cast<int>(t)];
}

// The inverse of Name; throws kInvalidArgument on an unknown name.
inline DType ParseDType(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (Name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  NEURON_THROW(kInvalidArgument, "unknown dtype '", name,
               "', expected one of b8, u8, i8, ..., c128");
}

}  // namespace neuron
