#include "compiler/loop_ir.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

namespace neuron::loop {
namespace {

constexpr std::string_view kKindNames[] = {"load",  "store",   "index", "scalar",
                                           "const", "compute", "reduce"};

std::string StridesText(const std::vector<Stride>& strides) {
  std::string out = "[";
  for (Stride s : strides) out += s == Stride::kZero ? '0' : s == Stride::kOne ? '1' : 's';
  return out + "]";
}

std::string ConstText(const Inst& inst) {
  char buffer[64];
  if (IsIntegral(inst.dtype)) {
    std::snprintf(buffer, sizeof buffer, "%" PRId64, inst.ivalue);
  } else {
    std::snprintf(buffer, sizeof buffer, "%a", inst.value);
  }
  return buffer;
}

void PrintInst(std::ostringstream& out, int id, const Inst& inst) {
  out << "%" << id << " " << kKindNames[static_cast<int>(inst.kind)] << " " << Name(inst.dtype);
  switch (inst.kind) {
    case Kind::kLoad:
    case Kind::kStore:
      out << " " << inst.slot << " " << StridesText(inst.strides);
      break;
    case Kind::kIndex:
      out << " " << StridesText(inst.strides);
      break;
    case Kind::kScalar:
      out << " " << inst.slot;
      break;
    case Kind::kConst:
      out << " " << ConstText(inst);
      break;
    case Kind::kCompute:
      out << " " << ir::Info(inst.op).name;
      break;
    case Kind::kReduce:
      break;
  }
  if (!inst.detail.empty()) out << " ." << inst.detail;
  if (inst.wrap) out << " wrap";
  if (inst.keep) out << " keep";
  for (int operand : inst.operands) out << " %" << operand;
  for (int index : inst.indirect) out << " @" << index;
  out << "\n";
}

class LineParser {
 public:
  LineParser(std::string_view line, int number) : stream_(std::string(line)), number_(number) {}

  bool Next(std::string* token) { return static_cast<bool>(stream_ >> *token); }
  std::string Need(const char* what) {
    std::string token;
    if (!Next(&token)) Fail(what);
    return token;
  }
  int NeedInt(const char* what) {
    const std::string token = Need(what);
    char* end = nullptr;
    const long value = std::strtol(token.c_str(), &end, 10);
    if (*end != 0 || token.empty() || value < 0 || value > 1 << 20) Fail(what);
    return static_cast<int>(value);
  }
  [[noreturn]] void Fail(const char* what) const {
    NEURON_THROW(kInvalidArgument, "kernel text, line ", number_, ": expected ", what);
  }

 private:
  std::istringstream stream_;
  int number_;
};

ir::OpCode ParseOp(LineParser& line, const std::string& name) {
  static const auto* const kOps = [] {
    auto* ops = new std::map<std::string, ir::OpCode, std::less<>>;
    for (int i = 0; i < ir::kNumOpCodes; ++i) {
      ops->emplace(ir::Info(static_cast<ir::OpCode>(i)).name, static_cast<ir::OpCode>(i));
    }
    return ops;
  }();
  const auto it = kOps->find(name);
  if (it == kOps->end()) line.Fail("an operation name");
  return it->second;
}

std::vector<Stride> ParseStrides(LineParser& line) {
  const std::string token = line.Need("strides such as [s1]");
  if (token.size() < 2 || token.front() != '[' || token.back() != ']')
    line.Fail("strides such as [s1]");
  std::vector<Stride> out;
  for (char c : token.substr(1, token.size() - 2)) {
    if (c != '0' && c != '1' && c != 's') line.Fail("0, 1 or s in strides");
    out.push_back(c == '0' ? Stride::kZero : c == '1' ? Stride::kOne : Stride::kParam);
  }
  return out;
}

Inst ParseInst(LineParser& line) {
  Inst inst;
  const std::string kind = line.Need("an instruction kind");
  int k = 0;
  while (k < 7 && kKindNames[k] != kind) ++k;
  if (k == 7) line.Fail("load, store, index, scalar, const, compute or reduce");
  inst.kind = static_cast<Kind>(k);
  inst.dtype = ParseDType(line.Need("a dtype"));
  switch (inst.kind) {
    case Kind::kLoad:
    case Kind::kStore:
      inst.slot = line.NeedInt("an operand number");
      inst.strides = ParseStrides(line);
      break;
    case Kind::kIndex:
      inst.strides = ParseStrides(line);
      break;
    case Kind::kScalar:
      inst.slot = line.NeedInt("a scalar number");
      break;
    case Kind::kConst: {
      const std::string text = line.Need("a value");
      if (IsIntegral(inst.dtype)) {
        inst.ivalue = std::strtoll(text.c_str(), nullptr, 10);
      } else {
        inst.value = std::strtod(text.c_str(), nullptr);
      }
      break;
    }
    case Kind::kCompute:
      inst.op = ParseOp(line, line.Need("an operation name"));
      break;
    case Kind::kReduce:
      break;
  }
  std::string token;
  while (line.Next(&token)) {
    if (token == "wrap") {
      inst.wrap = true;
    } else if (token == "keep") {
      inst.keep = true;
    } else if (token[0] == '.') {
      inst.detail = token.substr(1);
    } else if (token[0] == '%' || token[0] == '@') {
      (token[0] == '%' ? inst.operands : inst.indirect).push_back(std::atoi(token.c_str() + 1));
    } else {
      line.Fail("%n, @n, .detail, wrap or keep");
    }
  }
  return inst;
}

uint32_t ReducedMask(const Kernel& kernel) {
  uint32_t mask = 0;
  for (size_t d = 0; d < kernel.reduced.size(); ++d) mask |= kernel.reduced[d] ? 1u << d : 0u;
  return mask;
}

// Every element of the reduced dimensions, and every lane, has a value of its own.
bool CanKeep(const Kernel& kernel, const Inst& inst, uint32_t depends) {
  const uint32_t all = ReducedMask(kernel) | 1u << kernel.vector_dim;
  return inst.kind == Kind::kCompute && (depends & all) == all;
}

// Users come after what they use: one walk from the end.
std::vector<uint32_t> PassesAndMark(Kernel& kernel, bool mark) {
  const std::vector<uint32_t> masks = DependenceMasks(kernel);
  const std::vector<int> ready = PassesBefore(kernel);
  const uint32_t reduced = ReducedMask(kernel);
  std::vector<uint32_t> passes(kernel.insts.size(), 0);
  for (size_t i = kernel.insts.size(); i-- > 0;) {
    Inst& inst = kernel.insts[i];
    if (inst.kind == Kind::kReduce) {
      passes[i] = 1u << (ready[i] - 1);
    } else if (inst.kind == Kind::kStore || (masks[i] & reduced) == 0) {
      passes[i] = 1u << ready[i];
    }
    if (mark && std::popcount(passes[i]) > 1 && IsTranscendental(inst.op) &&
        CanKeep(kernel, inst, masks[i]))
      inst.keep = true;
    if (inst.keep) passes[i] &= -passes[i];
    for (int operand : inst.operands) passes[operand] |= passes[i];
    for (int index : inst.indirect) passes[index] |= passes[i];
  }
  return passes;
}

}  // namespace

std::string Print(const Kernel& kernel) {
  std::ostringstream out;
  out << "kernel " << kernel.name << "\ndims ";
  for (bool reduced : kernel.reduced) out << (reduced ? 'r' : 'p');
  out << " vector " << kernel.vector_dim << " operands " << kernel.operands << " scalars "
      << kernel.scalars << "\n";
  for (size_t i = 0; i < kernel.insts.size(); ++i)
    PrintInst(out, static_cast<int>(i), kernel.insts[i]);
  return out.str();
}

Kernel Parse(std::string_view text) {
  Kernel kernel;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    LineParser line(text.substr(0, end), ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::string head = line.Need("a line");
    if (head == "kernel") {
      kernel.name = line.Need("a name");
    } else if (head == "dims") {
      for (char c : line.Need("dimensions such as ppr")) {
        if (c != 'p' && c != 'r') line.Fail("p or r");
        kernel.reduced.push_back(c == 'r');
      }
      for (int* field : {&kernel.vector_dim, &kernel.operands, &kernel.scalars}) {
        line.Need("vector, operands, scalars");
        *field = line.NeedInt("a number");
      }
    } else if (head == "%" + std::to_string(kernel.insts.size())) {
      kernel.insts.push_back(ParseInst(line));
    } else {
      line.Fail("kernel, dims or the next instruction");
    }
  }
  Verify(kernel);
  return kernel;
}

int NumParams(const Inst& inst) {
  int n = inst.kind == Kind::kIndex ? 1 : 0;
  for (Stride s : inst.strides) n += s == Stride::kParam;
  return n + 2 * static_cast<int>(inst.indirect.size());
}

std::vector<uint32_t> DependenceMasks(const Kernel& kernel) {
  const uint32_t reduced = ReducedMask(kernel);
  std::vector<uint32_t> masks(kernel.insts.size(), 0);
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    uint32_t mask = 0;
    for (size_t d = 0; d < inst.strides.size(); ++d) {
      if (inst.strides[d] != Stride::kZero) mask |= 1u << d;
    }
    for (int operand : inst.operands) mask |= masks[operand];
    for (int index : inst.indirect) mask |= masks[index];
    if (inst.kind == Kind::kReduce) mask &= ~reduced;
    masks[i] = mask;
  }
  return masks;
}

std::vector<int> PassesBefore(const Kernel& kernel) {
  std::vector<int> ready(kernel.insts.size());
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    int passes = 0;
    for (int operand : inst.operands) passes = std::max(passes, ready[operand]);
    for (int index : inst.indirect) passes = std::max(passes, ready[index]);
    ready[i] = passes + (inst.kind == Kind::kReduce ? 1 : 0);
  }
  return ready;
}

std::vector<uint32_t> Passes(const Kernel& kernel) {
  Kernel copy = kernel;
  return PassesAndMark(copy, false);
}

int MarkKept(Kernel& kernel) {
  PassesAndMark(kernel, true);
  return static_cast<int>(std::count_if(kernel.insts.begin(), kernel.insts.end(),
                                        [](const Inst& inst) { return inst.keep; }));
}

// Unary operations from exp on, and those of two operands that are as dear.
bool IsTranscendental(ir::OpCode code) {
  return (code >= ir::OpCode::kExp && code <= ir::OpCode::kErfc) || code == ir::OpCode::kPower ||
         code == ir::OpCode::kAtan2;
}

void Verify(const Kernel& kernel) {
  const size_t rank = kernel.reduced.size();
  NEURON_CHECK(rank >= 1 && rank <= 16, "kernel ", kernel.name, " has ", rank,
               " dimensions, expected 1 to 16");
  NEURON_CHECK(kernel.vector_dim >= 0 && kernel.vector_dim < static_cast<int>(rank),
               "vector dimension ", kernel.vector_dim);
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    const Inst& inst = kernel.insts[i];
    const auto fail = [&](const char* rule) {
      NEURON_THROW(kInternal, "kernel ", kernel.name, ", instruction %", i, ": ", rule);
    };
    const bool affine =
        inst.kind == Kind::kLoad || inst.kind == Kind::kStore || inst.kind == Kind::kIndex;
    if (inst.strides.size() != (affine ? rank : 0)) fail("needs one stride per dimension");
    for (int operand : inst.operands) {
      if (operand < 0 || operand >= static_cast<int>(i))
        fail("operand is not an earlier instruction");
      if (kernel.insts[operand].kind == Kind::kStore) fail("operand is a store");
    }
    for (int index : inst.indirect) {
      if (index < 0 || index >= static_cast<int>(i))
        fail("indirect index is not an earlier instruction");
      if (kernel.insts[index].dtype != DType::kI64) fail("indirect index is not i64");
    }
    if (inst.kind == Kind::kLoad || inst.kind == Kind::kStore) {
      if (inst.slot < 0 || inst.slot >= kernel.operands) fail("operand slot out of range");
    }
    if (inst.kind == Kind::kScalar && (inst.slot < 0 || inst.slot >= kernel.scalars))
      fail("scalar slot out of range");
    if (inst.kind == Kind::kStore && inst.operands.size() != 1) fail("a store has one operand");
  }
  const std::vector<uint32_t> masks = DependenceMasks(kernel);
  for (size_t i = 0; i < kernel.insts.size(); ++i) {
    if (kernel.insts[i].keep && !CanKeep(kernel, kernel.insts[i], masks[i])) {
      NEURON_THROW(kInternal, "kernel ", kernel.name, ", instruction %", i,
                   ": kept, but not computed per element of the reduced dimensions and per lane");
    }
  }
}

std::string Operations(const Kernel& kernel) {
  std::string out;
  for (const Inst& inst : kernel.insts) {
    if (inst.kind != Kind::kCompute && inst.kind != Kind::kReduce) continue;
    if (!out.empty()) out += ' ';
    out +=
        inst.kind == Kind::kReduce ? "reduce_" + inst.detail : std::string(ir::Info(inst.op).name);
  }
  return out.empty() ? "copy" : out;
}

}  // namespace neuron::loop
