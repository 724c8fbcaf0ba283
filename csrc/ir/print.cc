#include <charconv>
#include <cmath>

#include "ir/graph.h"

namespace neuron::ir {
namespace {

template <typename T>
void PrintNumber(std::string& out, T value) {
  char buffer[40];  // the shortest text of a double has 24 characters
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  out.append(buffer, result.ptr);
}

void PrintInts(std::string& out, const Dims& values) {
  out += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out += ", ";
    PrintNumber(out, values[i]);
  }
  out += ']';
}

// Shortest text that reads back as the same double, with a mark that tells it from an integer.
void PrintDouble(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "nan";
  } else if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
  } else {
    const size_t start = out.size();
    PrintNumber(out, value);
    if (out.find_first_of(".e", start) == std::string::npos) out += ".0";
  }
}

void PrintQuoted(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c >= ' ' && c <= '~') {
      out += c;
    } else {
      const auto byte = static_cast<uint8_t>(c);
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out += '"';
}

// Bare where it cannot be mistaken for anything else.
void PrintName(std::string& out, std::string_view name) {
  bool bare = !name.empty();
  for (const char c : name) bare = bare && IsNameChar(c);
  if (bare) {
    out += name;
  } else {
    PrintQuoted(out, name);
  }
}

void PrintAttribute(std::string& out, const Attribute& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    PrintNumber(out, *integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    PrintDouble(out, *real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    PrintQuoted(out, *text);
  } else {
    PrintInts(out, std::get<Dims>(value));
  }
}

void PrintType(std::string& out, const Type& type) {
  out += Name(type.dtype);
  out += '[';
  for (size_t i = 0; i < type.dims.size(); ++i) {
    if (i > 0) out += ',';
    PrintNumber(out, type.dims[i]);
  }
  out += ']';
}

void PrintValue(std::string& out, const Op* op) {
  out += '%';
  PrintNumber(out, op->id);
}

void PrintOp(std::string& out, const Op& op) {
  PrintValue(out, &op);
  out += " = ";
  out += Info(op.code).name;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    out += i == 0 ? "(" : ", ";
    PrintValue(out, op.operands[i]);
  }
  if (!op.operands.empty()) out += ')';
  bool first = true;
  for (const auto& [name, value] : op.attributes) {
    out += first ? " {" : ", ";
    first = false;
    out += name;
    out += '=';
    PrintAttribute(out, value);
  }
  if (!first) out += '}';
  out += " : ";
  PrintType(out, op.type);
}

void PrintOutput(std::string& out, const Output& output) {
  PrintValue(out, output.value);
  out += " {strides=";
  PrintInts(out, output.strides);
  out += '}';
  if (output.aliases_parameter >= 0) {
    out += " aliases ";
    PrintNumber(out, output.aliases_parameter);
  }
}

}  // namespace

std::string ToString(const Type& type) {
  std::string out;
  PrintType(out, type);
  return out;
}

std::string ToString(const Op& op) {
  std::string out;
  PrintOp(out, op);
  return out;
}

std::string Print(const Graph& graph) {
  std::string out = "graph @";
  PrintName(out, graph.name());
  out += " {\n";
  for (const auto& op : graph.ops()) {
    out += "  ";
    PrintOp(out, *op);
    if (op->region >= 0) {
      out += " in ";
      PrintName(out, graph.regions()[static_cast<size_t>(op->region)]);
      out += '#';
      PrintNumber(out, op->region);
    }
    out += '\n';
  }
  out += "  return";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    out += i == 0 ? " " : ", ";
    PrintOutput(out, graph.outputs()[i]);
  }
  return out + "\n}\n";
}

}  // namespace neuron::ir
