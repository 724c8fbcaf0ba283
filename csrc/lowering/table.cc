#include "lowering/table.h"

namespace neuron::lowering {

const Table& Table::Get() {
  static const Table table = [] {
    Table out;
    for (auto* add : {AddPointwise, AddActivations,   AddComparisons, AddReductions, AddNorms,
                      AddMatmuls,   AddConvolutions,  AddAttention,   AddIndexing,   AddShapes,
                      AddFactories, AddRandom,        AddViews,       AddOrder,      AddIndexAlong,
                      AddSpecial,   AddNormGradients, AddLosses,      AddOptimizers, AddResize}) {
      add(out);
    }
    return out;
  }();
  return table;
}

const Entry* Table::Find(std::string_view name) const {
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : &it->second;
}

Entry& Table::Add(std::string name, LowerFn lower) {
  Entry entry;
  entry.name = name;
  entry.lower = lower;
  const auto [it, inserted] = entries_.emplace(std::move(name), std::move(entry));
  NEURON_CHECK(inserted, "two lowerings of ", it->first);
  return it->second;
}

}  // namespace neuron::lowering
