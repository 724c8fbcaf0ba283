// The one table of lowerings: ATen overload -> IR. Eager (a graph of one op) and torch.compile (a
// graph of many) both use it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lowering/context.h"

namespace neuron::lowering {

using LowerFn = void (*)(Context&);

struct Entry {
  std::string
      name;  // "add.Tensor"; the base form: functional where one exists, else out= or in-place
  LowerFn lower = nullptr;
  // Numbers whose values must be known to the lowering: shapes depend on them, or code differs.
  std::vector<std::string> static_args;
  // Draws random numbers: one counter per element of the first result, from the generator argument.
  bool random = false;
  // Moves elements without looking at them: complex ones too.
  bool moves_only = false;
  // Used for whole graphs only: in eager PyTorch's own kernel does it (views, factories).
  bool graph_only = false;
  // Eager's kernel is one of csrc/aten, which checks what it is given and calls this one.
  bool called = false;
  // Complex tensors arrive as real ones with a last dimension of 2 (real, imaginary).
  bool complex_as_pairs = false;
  // Extra forms that do not follow from the name, "aten overload" each.
  std::vector<std::string> aliases;
};

class Table {
 public:
  static const Table& Get();
  const Entry* Find(std::string_view name) const;
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

  // Throws kInternal on a duplicate.
  Entry& Add(std::string name, LowerFn lower);

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

// One per family, each in the file of its name.
void AddPointwise(Table& table);
void AddActivations(Table& table);
void AddComparisons(Table& table);
void AddReductions(Table& table);
void AddNorms(Table& table);
void AddNormGradients(Table& table);
void AddLosses(Table& table);
void AddOptimizers(Table& table);
void AddResize(Table& table);
void AddMatmuls(Table& table);
void AddConvolutions(Table& table);
void AddAttention(Table& table);
void AddIndexing(Table& table);
void AddShapes(Table& table);
void AddFactories(Table& table);
void AddRandom(Table& table);
void AddViews(Table& table);
void AddIndexAlong(Table& table);
void AddSpecial(Table& table);
void AddOrder(Table& table);

}  // namespace neuron::lowering
