#include "ir/stablehlo_text.h"

#include <bit>
#include <charconv>
#include <cmath>

namespace neuron::ir::hlo {
namespace {

std::string Hex(uint64_t bits, int digits) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out = "0x";
  for (int i = digits - 1; i >= 0; --i) out += kDigits[bits >> (4 * i) & 15];
  return out;
}

// Infinities and NaN have no decimal form in MLIR: the bits.
std::string SpecialFloat(DType dtype, double value) {
  const bool negative = std::signbit(value), nan = std::isnan(value);
  switch (dtype) {
    case DType::kF16:
      return Hex((negative ? 0x8000u : 0u) | 0x7C00u | (nan ? 0x200u : 0u), 4);
    case DType::kBF16:
      return Hex((negative ? 0x8000u : 0u) | 0x7F80u | (nan ? 0x40u : 0u), 4);
    case DType::kF32:
      return Hex(std::bit_cast<uint32_t>(static_cast<float>(value)), 8);
    default:
      return Hex(std::bit_cast<uint64_t>(value), 16);
  }
}

// MLIR wants a point before the exponent: 1.0e+30, not 1e+30.
template <typename T>
std::string Decimal(T value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = text.find('e');
  return text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
}

std::string Float(DType dtype, double value) {
  const double largest = dtype == DType::kF16    ? 65519.99
                         : dtype == DType::kF64  ? INFINITY
                         : dtype == DType::kBF16 ? 0x1.feffffp127
                                                 : 0x1.ffffffp127;
  if (std::isfinite(value) && std::fabs(value) > largest) value = std::copysign(INFINITY, value);
  if (!std::isfinite(value)) return SpecialFloat(dtype, value);
  if (dtype == DType::kF64) return Decimal(value);
  return Decimal(static_cast<float>(value));
}

std::string Integer(DType dtype, int64_t value) {
  if (dtype == DType::kBool) return value != 0 ? "true" : "false";
  if (dtype == DType::kU64) return std::to_string(static_cast<uint64_t>(value));
  return std::to_string(value);
}

std::string Number(DType dtype, const Attribute& value) {
  if (IsIntegral(dtype)) return Integer(dtype, std::get<int64_t>(value));
  const double number = std::get<double>(value);
  if (!IsComplex(dtype)) return Float(dtype, number);
  const DType part = dtype == DType::kC64 ? DType::kF32 : DType::kF64;
  return StrCat("(", Float(part, number), ", ", Float(part, 0), ")");
}

}  // namespace

std::string ElementName(DType dtype) {
  constexpr std::string_view kNames[kNumDTypes] = {
      "i1",  "ui8", "i8",   "ui16", "i16", "ui32",         "i32",         "ui64",
      "i64", "f16", "bf16", "f32",  "f64", "complex<f32>", "complex<f64>"};
  return std::string(kNames[static_cast<int>(dtype)]);
}

std::string TypeName(const Type& type) {
  std::string out = "tensor<";
  for (const int64_t size : type.dims) out += std::to_string(size) + "x";
  return out + ElementName(type.dtype) + ">";
}

std::string TypeNames(const std::vector<Type>& types) {
  std::vector<std::string> names;
  for (const Type& type : types) names.push_back(TypeName(type));
  return Join(names);
}

std::string List(const Dims& values) {
  std::vector<std::string> parts;
  for (const int64_t value : values) parts.push_back(std::to_string(value));
  return Join(parts);
}

std::string Join(const std::vector<std::string>& parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += separator;
    out += parts[i];
  }
  return out;
}

std::string DoubleAttribute(double value) { return Float(DType::kF64, value) + " : f64"; }

std::string Splat(const Type& type, const Attribute& value) {
  const std::string number = type.NumElements() == 0 ? "" : Number(type.dtype, value);
  return StrCat("dense<", number, "> : ", TypeName(type));
}

std::string Symbol(std::string_view name) {
  std::string out = "@";
  const bool starts = !name.empty() && !(name[0] >= '0' && name[0] <= '9') && name[0] != '.';
  if (!starts) out += '_';
  for (const char c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.';
    out += plain ? c : '_';
  }
  return out;
}

std::string Quote(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      out += c;
    } else {
      out += '\\';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out + '"';
}

}  // namespace neuron::ir::hlo
