#include "compiler/arena.h"

#include <algorithm>

namespace neuron::compiler {
namespace {

constexpr int64_t kAlignment = 64;

template <typename Fn>
void ForOperands(std::vector<host::Step>& steps, int operand, Fn visit) {
  for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
    host::Step& step = steps[static_cast<size_t>(s)];
    const auto each = [&](std::vector<host::OperandRef>& operands) {
      for (host::OperandRef& ref : operands) {
        if (ref.index == operand) visit(s, ref);
      }
    };
    each(step.kind == host::Step::kKernel ? step.kernel.operands : step.library.operands);
    if (step.library.epilogue) each(step.library.epilogue->kernel.operands);
  }
}

}  // namespace

int64_t Arena::Add(int64_t bytes) {
  const int64_t size = (std::max<int64_t>(1, bytes) + kAlignment - 1) / kAlignment * kAlignment;
  temporaries_.push_back({end_, size});
  end_ += size;
  return temporaries_.back().offset;
}

Arena::Temporary& Arena::At(int64_t offset) {
  const auto after =
      std::upper_bound(temporaries_.begin(), temporaries_.end(), offset,
                       [](int64_t value, const Temporary& t) { return value < t.offset; });
  return *(after - 1);
}

int64_t Arena::Pack(std::vector<host::Step>& steps, int operand) {
  ForOperands(steps, operand, [&](int s, const host::OperandRef& ref) {
    Temporary& t = At(ref.byte_offset);
    t.first = std::min(t.first, s);
    t.last = std::max(t.last, s);
  });
  const int64_t total = Place();
  ForOperands(steps, operand, [&](int, host::OperandRef& ref) {
    const Temporary& t = At(ref.byte_offset);
    ref.byte_offset += t.packed - t.offset;
  });
  return total;
}

// First fit by decreasing size.
int64_t Arena::Place() {
  std::vector<Temporary*> order;
  for (Temporary& t : temporaries_) {
    if (t.last >= 0) order.push_back(&t);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const Temporary* a, const Temporary* b) { return a->size > b->size; });
  const auto lower = [](const Temporary* a, const Temporary* b) { return a->packed < b->packed; };
  std::vector<const Temporary*> placed;  // by packed offset
  int64_t total = 0;
  for (Temporary* t : order) {
    int64_t at = 0;
    for (const Temporary* other : placed) {
      const bool alive = other->first <= t->last && t->first <= other->last;
      if (alive && at + t->size > other->packed && at < other->packed + other->size)
        at = other->packed + other->size;
    }
    t->packed = at;
    total = std::max(total, at + t->size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), t, lower), t);
  }
  return total;
}

}  // namespace neuron::compiler
