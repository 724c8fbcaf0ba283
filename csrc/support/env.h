// Environment variables, read once at first use, declared in env_table.inc and nowhere else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace neuron::env {

enum class Id {
#define NEURON_ENV(kind, id, name, default_value, help) k##kind##id,
#include "support/env_table.inc"
#undef NEURON_ENV
};

// Each throws kInvalidArgument naming the variable, its value and what was expected.
bool GetBool(Id id);
int64_t GetInt(Id id);
const std::string& GetString(Id id);

struct Description {
  std::string name, kind, default_value, help;
};
// The table, in its order.
std::vector<Description> Describe();

}  // namespace neuron::env
