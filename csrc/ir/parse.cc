// Recursive descent, one function for each part of the text form, without a separate lexer.
#include <charconv>

#include "ir/graph.h"

namespace neuron::ir {
namespace {

using Attributes = std::map<std::string, Attribute, std::less<>>;

constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }
constexpr bool IsWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '_';
}
constexpr bool IsNumberChar(char c) { return IsWordChar(c) || c == '+' || c == '-' || c == '.'; }
constexpr bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph Run() {
    Keyword("graph");
    Expect('@');
    Graph graph(Name("the name of the graph"));
    graph_ = &graph;
    Expect('{');
    while (Peek() == '%') ParseOp();
    Keyword("return");
    if (Peek() == '%') {
      do ParseOutput();
      while (Accept(','));
    }
    Expect('}');
    if (Peek() != '\0' || at_ < text_.size()) Fail(at_, "the end of the text");
    return graph;
  }

 private:
  // What stands at `position` is not what was expected.
  [[noreturn]] void Fail(size_t position, std::string_view expected) const {
    std::string_view found = text_.substr(position, text_.find('\n', position) - position);
    constexpr size_t kShown = 20;
    const bool cut = found.size() > kShown;
    found = found.substr(0, kShown);
    const std::string shown = position >= text_.size() ? std::string("the end of the text")
                                                       : StrCat("'", found, cut ? "...'" : "'");
    Throw(position, StrCat("expected ", expected, ", found ", shown));
  }

  [[noreturn]] void Throw(size_t position, const std::string& what) const {
    int64_t line = 1;
    size_t start = 0;
    for (size_t i = 0; i < position && i < text_.size(); ++i) {
      if (text_[i] != '\n') continue;
      ++line;
      start = i + 1;
    }
    NEURON_THROW(kInvalidArgument, "graph text, line ", line, " column ", position - start + 1,
                 ": ", what);
  }

  // The next character that is no white space; '\0' at the end.
  char Peek() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool Accept(char c) {
    if (Peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }

  void Expect(char c) {
    if (!Accept(c)) Fail(at_, StrCat("'", c, "'"));
  }

  template <typename Predicate>
  std::string_view TakeWhile(Predicate is_part) {
    const size_t start = at_;
    while (at_ < text_.size() && is_part(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }

  std::string_view Word(std::string_view expected) {
    Peek();
    const std::string_view word = TakeWhile(IsWordChar);
    if (word.empty()) Fail(at_, expected);
    return word;
  }

  void Keyword(std::string_view keyword) {
    Peek();
    const size_t start = at_;
    if (TakeWhile(IsWordChar) != keyword) Fail(start, StrCat("'", keyword, "'"));
  }

  std::string Name(std::string_view expected) {
    if (Peek() == '"') return Quoted();
    const std::string_view name = TakeWhile(IsNameChar);
    if (name.empty()) Fail(at_, expected);
    return std::string(name);
  }

  template <typename T>
  T Number(size_t start, std::string_view digits, std::string_view expected) {
    T value{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error == std::errc::result_out_of_range) Throw(start, StrCat(digits, " is out of range"));
    if (error != std::errc() || end != digits.data() + digits.size()) Fail(start, expected);
    return value;
  }

  template <typename T = int64_t>
  T Int(std::string_view expected = "an integer") {
    Peek();
    const size_t start = at_;
    return Number<T>(start, TakeWhile(IsNumberChar), expected);
  }

  Dims Ints() {
    Expect('[');
    Dims values;
    if (Accept(']')) return values;
    do values.push_back(Int());
    while (Accept(','));
    if (!Accept(']')) Fail(at_, "',' or ']'");
    return values;
  }

  std::string Quoted() {
    const size_t start = at_;
    Expect('"');
    std::string out;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] != '\\') {
        out += text_[at_++];
      } else {
        out += Escape();
      }
    }
    if (at_ >= text_.size()) Throw(start, "the string that starts here does not end");
    ++at_;
    return out;
  }

  // \" \\ or \xNN
  char Escape() {
    const size_t start = at_;
    const std::string_view rest = text_.substr(at_ + 1, 3);
    if (!rest.empty() && (rest[0] == '"' || rest[0] == '\\')) {
      at_ += 2;
      return rest[0];
    }
    unsigned value = 0;
    const auto [end, error] =
        std::from_chars(rest.data() + !rest.empty(), rest.data() + rest.size(), value, 16);
    if (rest.size() != 3 || rest[0] != 'x' || error != std::errc() || end != rest.data() + 3) {
      Fail(start, "one of \\\" \\\\ \\xNN");
    }
    at_ += 4;
    return static_cast<char>(value);
  }

  Attribute ParseAttributeValue() {
    const char first = Peek();
    if (first == '"') return Quoted();
    if (first == '[') return Ints();
    constexpr std::string_view kExpected = "a number, a quoted string or a list";
    const size_t start = at_;
    const std::string_view number = TakeWhile(IsNumberChar);
    if (number.empty()) Fail(start, kExpected);
    // from_chars reads "infinity" and "nan(...)" too: Print never writes them.
    const std::string_view digits = number.substr(number.front() == '-' ? 1 : 0);
    const bool special = digits == "inf" || number == "nan";
    if (!special && (digits.empty() || !IsDigit(digits.front()))) Fail(start, kExpected);
    if (special || number.find_first_of(".e") != std::string_view::npos) {
      return Number<double>(start, number, kExpected);
    }
    return Number<int64_t>(start, number, kExpected);
  }

  Attributes ParseAttributes() {
    Attributes attributes;
    if (!Accept('{')) return attributes;
    do {
      Peek();
      const size_t start = at_;
      const std::string name(Word("the name of an attribute"));
      Expect('=');
      if (!attributes.emplace(name, ParseAttributeValue()).second) {
        Throw(start, StrCat("attribute '", name, "' is given twice"));
      }
    } while (Accept(','));
    if (!Accept('}')) Fail(at_, "',' or '}'");
    return attributes;
  }

  Op* ParseValue() {
    Peek();
    const size_t start = at_;
    if (!Accept('%')) Fail(at_, "a value (%number)");
    const auto id = Int<uint32_t>("the number of a value");
    if (id >= graph_->ops().size()) Throw(start, StrCat("%", id, " is used before its definition"));
    return graph_->ops()[id].get();
  }

  std::vector<Op*> ParseOperands() {
    std::vector<Op*> operands;
    if (!Accept('(')) return operands;
    do operands.push_back(ParseValue());
    while (Accept(','));
    if (!Accept(')')) Fail(at_, "',' or ')'");
    return operands;
  }

  Type ParseType() {
    Peek();
    const size_t start = at_;
    const std::string_view name = Word("a type, such as f32[4,8]");
    Type type;
    try {
      type.dtype = ParseDType(name);
    } catch (const Error& error) {
      Throw(start, error.what());
    }
    type.dims = Ints();
    return type;
  }

  void ParseOp() {
    const size_t start = at_;
    Expect('%');
    const size_t id = Int<uint32_t>("the number of the next value");
    if (id != graph_->ops().size())
      Fail(start, StrCat("%", graph_->ops().size(), ", the next value"));
    Expect('=');
    Peek();
    const size_t at = at_;
    const std::string_view name = Word("the name of an operation");
    const auto code = FindOpCode(name);
    if (!code) Throw(at, StrCat("no operation is called '", name, "'"));
    std::vector<Op*> operands = ParseOperands();
    Attributes attributes = ParseAttributes();
    Expect(':');
    Append(at, *code, ParseType(), std::move(operands), std::move(attributes));
    if (Peek() == 'i') ParseRegion();
  }

  // " in aten.gelu#0"
  void ParseRegion() {
    Keyword("in");
    Peek();
    const size_t start = at_;
    const std::string name = Name("the name of a region");
    Expect('#');
    constexpr int kMax = 1 << 20;  // far above the operations of any graph
    const int index = Int<int>("the number of a region");
    if (index < 0 || index > kMax) Throw(start, StrCat("there is no region ", index));
    try {
      graph_->NameRegion(index, name);
    } catch (const Error& error) {
      Throw(start, error.what());
    }
    graph_->ops().back()->region = index;
  }

  // Arguments are numbered by the graph itself, so the text must number them the same way.
  void Append(size_t at, OpCode code, Type type, std::vector<Op*> operands, Attributes attributes) {
    if (code != OpCode::kParameter && code != OpCode::kScalar) {
      graph_->Add(code, std::move(type), std::move(operands), std::move(attributes));
      return;
    }
    const bool parameter = code == OpCode::kParameter;
    const auto next =
        parameter ? static_cast<int64_t>(graph_->parameters().size()) : graph_->num_scalars();
    const auto index = attributes.find("index");
    if (index == attributes.end() || index->second != Attribute(next)) {
      Throw(at, StrCat("expected index=", next, ", the next ", Info(code).name));
    }
    Op* op = parameter ? graph_->AddParameter(type, {}) : graph_->AddScalar(type.dtype);
    op->type = std::move(type);
    op->operands = std::move(operands);
    op->attributes = std::move(attributes);
  }

  void ParseOutput() {
    Op* value = ParseValue();
    Peek();
    const size_t start = at_;
    const Attributes attributes = ParseAttributes();
    const auto strides = attributes.find("strides");
    if (attributes.size() != 1 || strides == attributes.end() ||
        !std::holds_alternative<Dims>(strides->second)) {
      Fail(start, "{strides=[...]}");
    }
    int aliases = -1;
    if (Peek() == 'a') {
      Keyword("aliases");
      Peek();
      const size_t at = at_;
      aliases = Int<int>("the index of a parameter");
      if (aliases < 0) Fail(at, "the index of a parameter");
    }
    graph_->AddOutput(value, std::get<Dims>(strides->second), aliases);
  }

  const std::string_view text_;
  size_t at_ = 0;
  Graph* graph_ = nullptr;
};

}  // namespace

Graph Parse(std::string_view text) { return Parser(text).Run(); }

}  // namespace neuron::ir
