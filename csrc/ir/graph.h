// The tensor-level IR. A Graph is a list of single-result operations in definition order; shapes
// are static. Operations have StableHLO semantics unless opcodes.inc says otherwise; what StableHLO
// has no name for (attention, convolution with bias...) is written there with its definition.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "support/dtype.h"

namespace neuron::ir {

using Dims = std::vector<int64_t>;

struct Type {
  DType dtype = DType::kF32;
  Dims dims;
  int rank() const { return static_cast<int>(dims.size()); }
  int64_t NumElements() const;
  friend bool operator==(const Type&, const Type&) = default;
};
std::string ToString(const Type& type);  // "f32[4,8]", "i64[]"

enum class OpCode : uint8_t {
#define NEURON_OP(Id, name, operands, attributes, doc) k##Id,
#include "ir/opcodes.inc"
#undef NEURON_OP
};
inline constexpr int kNumOpCodes = 0
#define NEURON_OP(Id, name, operands, attributes, doc) +1
#include "ir/opcodes.inc"
#undef NEURON_OP
    ;

// Facts about an opcode, from opcodes.inc.
struct OpInfo {
  std::string_view name;        // text form, "broadcast_in_dim"
  int operands;                 // number of operands, or -1: any number
  std::string_view attributes;  // names it requires, separated by spaces; "name?" is optional
  std::string_view doc;
};
const OpInfo& Info(OpCode code);
// The inverse of Info(code).name; nothing if no operation has this name.
std::optional<OpCode> FindOpCode(std::string_view name);

using Attribute = std::variant<int64_t, double, std::string, Dims>;

class Op {
 public:
  OpCode code;
  Type type;
  std::vector<Op*> operands;
  std::map<std::string, Attribute, std::less<>> attributes;
  int id = 0;       // position in the graph, its name in text: %id
  int region = -1;  // of the graph's regions, the one that it belongs to, or -1

  // Each throws kInternal when the attribute is absent or of another kind.
  int64_t Int(std::string_view name) const;
  double Double(std::string_view name) const;
  const Dims& Ints(std::string_view name) const;
  const std::string& String(std::string_view name) const;
  bool Has(std::string_view name) const { return attributes.find(name) != attributes.end(); }
};

// Its line of the text form, without indentation: "%4 = add(%0, %3) : f32[4,8]".
std::string ToString(const Op& op);

// One output: a value and how it lies in memory (strides in elements, one per dimension).
struct Output {
  Op* value = nullptr;
  Dims strides;
  // Index of the parameter whose memory and strides this output shares exactly, or -1.
  int aliases_parameter = -1;
};

class Graph {
 public:
  explicit Graph(std::string name) : name_(std::move(name)) {}
  Graph(Graph&&) = default;
  Graph& operator=(Graph&&) = default;

  const std::string& name() const { return name_; }
  const std::deque<std::unique_ptr<Op>>& ops() const { return ops_; }
  const std::vector<Op*>& parameters() const { return parameters_; }
  int num_scalars() const { return num_scalars_; }
  const std::vector<Output>& outputs() const { return outputs_; }

  // Appends an operation. No checks: Verify does them.
  Op* Add(OpCode code, Type type, std::vector<Op*> operands,
          std::map<std::string, Attribute, std::less<>> attributes = {});
  // A tensor argument. `strides` in elements, one per dimension, 0 allowed.
  Op* AddParameter(Type type, Dims strides);
  // A run-time scalar argument: rank 0, dtype f64, i64 or bool.
  Op* AddScalar(DType dtype);
  void AddOutput(Op* value, Dims strides, int aliases_parameter = -1);
  // Operations added from here on, until the next call, are one region: a part that compilers with
  // an engine for it may want to know by name ("aten.gelu"). It means nothing else. An empty name:
  // in no region.
  void SetRegion(std::string name);
  const std::vector<std::string>& regions() const { return regions_; }
  // For operations that already are there: grows regions() to hold `index`. Throws kInvalidArgument
  // if that has another name.
  void NameRegion(int index, std::string_view name);
  // Drops operations that no output needs and renumbers. Parameters and scalars stay.
  void RemoveDeadOps();

 private:
  std::string name_;
  std::deque<std::unique_ptr<Op>> ops_;
  std::vector<Op*> parameters_;
  int num_scalars_ = 0;
  std::vector<Output> outputs_;
  std::vector<std::string> regions_;
  int region_ = -1;  // of operations to be added
};

Dims ContiguousStrides(const Dims& dims);

// Text form, one operation a line with its attributes in the order of their names:
//
//   graph @add {
//     %0 = parameter {index=0, strides=[8, 1]} : f32[4,8]
//     %1 = scalar {index=0} : f64[]
//     %2 = convert(%1) : f32[]
//     %3 = broadcast_in_dim(%2) {dims=[]} : f32[4,8]
//     %4 = add(%0, %3) : f32[4,8]
//     return %4 {strides=[8, 1]} aliases 0
//   }
//
// An operation of a region ends with its name and number: "%5 = erf(%4) : f32[4,8] in aten.gelu#0".
// Attributes show their kind: 1 is an int, 1.0 (or 1e9, inf, -inf, nan) a double, "x" a string, [1,
// 2] a list. Parse(Print(g)) prints the same text.
std::string Print(const Graph& graph);
// White space separates and means nothing else. Throws kInvalidArgument with line, column and what
// was expected there.
Graph Parse(std::string_view text);
// Whether a graph name of such characters is written without quotes.
constexpr bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == ':' || c == '-';
}
// Checks all that opcodes.inc says of operands, attributes, shapes and dtypes, and that outputs fit
// their values and the parameters they alias. Throws kInternal with the line of the operation and
// the rule it breaks.
void Verify(const Graph& graph);

}  // namespace neuron::ir
