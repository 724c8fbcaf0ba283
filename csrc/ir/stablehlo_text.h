// Spelling of types, numbers and lists in StableHLO's text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace neuron::ir::hlo {

std::string ElementName(DType dtype);                   // "i1", "ui8", "bf16", "complex<f32>"
std::string TypeName(const Type& type);                 // "tensor<4x8xf32>"
std::string TypeNames(const std::vector<Type>& types);  // "tensor<f32>, tensor<i64>"
std::string List(const Dims& values);                   // "1, 2, 3"
std::string Join(const std::vector<std::string>& parts, std::string_view separator = ", ");
// An attribute's double, "2.5e-01 : f64".
std::string DoubleAttribute(double value);
// "dense<1.0> : tensor<4xf32>": every element is the number, rounded to the dtype.
std::string Splat(const Type& type, const Attribute& value);
// The name as a symbol ("@softmax"), other characters replaced by '_'.
std::string Symbol(std::string_view name);
std::string Quote(std::string_view text);

}  // namespace neuron::ir::hlo
