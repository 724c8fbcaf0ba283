#include <charconv>
#include <cmath>
#include <sstream>

#include "ir/graph.h"

namespace neuron::ir {
namespace {

void PrintInts(std::string& out, const Dims& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) out += (i ? ", " : "") + std::to_string(values[i]);
  out += ']';
}

// Shortest text that reads back as the same double, always with a mark that tells it from an integer.
std::string DoubleText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void PrintAttribute(std::string& out, const Attribute& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    out += std::to_string(*integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    out += DoubleText(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out += '"' + *text + '"';
  } else {
    PrintInts(out, std::get<Dims>(value));
  }
}

void PrintOp(std::string& out, const Op& op) {
  out += "  %" + std::to_string(op.id) + " = " + std::string(Info(op.code).name);
  if (!op.operands.empty()) {
    out += '(';
    for (size_t i = 0; i < op.operands.size(); ++i) out += (i ? ", %" : "%") + std::to_string(op.operands[i]->id);
    out += ')';
  }
  if (!op.attributes.empty()) {
    out += " {";
    bool first = true;
    for (const auto& [name, value] : op.attributes) {
      if (!first) out += ", ";
      first = false;
      out += name + "=";
      PrintAttribute(out, value);
    }
    out += '}';
  }
  out += " : " + ToString(op.type) + "\n";
}

}  // namespace

std::string Print(const Graph& graph) {
  std::string out = "graph @" + graph.name() + " {\n";
  for (const auto& op : graph.ops()) PrintOp(out, *op);
  out += "  return";
  bool first = true;
  for (const Output& output : graph.outputs()) {
    out += first ? " %" : ", %";
    first = false;
    out += std::to_string(output.value->id) + " {strides=";
    PrintInts(out, output.strides);
    out += '}';
    if (output.aliases_parameter >= 0) out += " aliases " + std::to_string(output.aliases_parameter);
  }
  return out + "\n}\n";
}

}  // namespace neuron::ir
