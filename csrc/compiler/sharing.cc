#include "compiler/sharing.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "compiler/library_calls.h"

namespace neuron::compiler {

using ir::Op;
using ir::OpCode;

namespace {

constexpr int kWorthStoring =
    4;  // instructions per element; a load and its conversion cost about two
constexpr int64_t kWorthElements = 256;
constexpr int kLongestChain = 48;  // instructions in one kernel before a value is written after all

int OwnCost(OpCode code) {
  if (!IsElementwise(code)) return 0;
  return code >= OpCode::kExp && code <= OpCode::kDigamma ? 6 : 1;
}

// The kernels that need a value, told apart by the value that each computes. Two are enough to
// know.
struct Roots {
  std::array<const Op*, 2> ops{};
  void Add(const Op* op) {
    if (ops[0] == nullptr || ops[0] == op) {
      ops[0] = op;
    } else if (ops[1] == nullptr) {
      ops[1] = op;
    }
  }
  bool Several() const { return ops[1] != nullptr && ops[1] != ops[0]; }
};

}  // namespace

bool IsElementwise(OpCode code) { return code >= OpCode::kConvert && code <= OpCode::kFma; }

bool IsFusible(OpCode code) {
  switch (code) {
    case OpCode::kConcatenate:
    case OpCode::kPad:
    case OpCode::kScatter:
    case OpCode::kScatterNd:
      return false;
    default:
      return !IsLibraryOp(code);
  }
}

std::unordered_set<const Op*> FindShared(const ir::Graph& graph,
                                         const std::unordered_set<const Op*>& written) {
  std::unordered_map<const Op*, int> cost;
  std::unordered_map<const Op*, std::vector<const Op*>> consumers;
  std::unordered_set<const Op*> shared;
  for (const auto& op : graph.ops()) {
    int total = OwnCost(op->code);
    for (const Op* operand : op->operands) {
      consumers[operand].push_back(op.get());
      total += IsFusible(operand->code) ? cost[operand] : 0;
    }
    // Reductions hide what they read; long chains are cut, or small kernels would grow without end.
    if (op->code == OpCode::kReduce) total = 1;
    if (total > kLongestChain && op->type.NumElements() >= kWorthElements &&
        IsElementwise(op->code)) {
      shared.insert(op.get());
      total = 0;
    }
    if (written.contains(op.get())) total = 0;
    cost[op.get()] = total;
  }
  std::unordered_map<const Op*, Roots> roots;
  for (const ir::Output& output : graph.outputs()) roots[output.value].Add(output.value);
  for (auto it = graph.ops().rbegin(); it != graph.ops().rend(); ++it) {
    const Op* op = it->get();
    Roots& mine = roots[op];
    for (const Op* consumer : consumers[op]) {
      if (!IsFusible(consumer->code)) {
        mine.Add(op);
      } else if (shared.contains(consumer) || written.contains(consumer)) {
        mine.Add(consumer);
      } else {
        for (const Op* root : roots[consumer].ops) {
          if (root != nullptr) mine.Add(root);
        }
      }
    }
    if (mine.Several() && cost[op] >= kWorthStoring && op->type.NumElements() >= kWorthElements &&
        IsElementwise(op->code) && !written.contains(op)) {
      shared.insert(op);
    }
  }
  return shared;
}

}  // namespace neuron::compiler
