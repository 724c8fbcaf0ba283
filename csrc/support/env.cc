#include "support/env.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "support/error.h"

namespace neuron::env {
namespace {

struct Row {
  const char* kind;
  const char* name;
  const char* default_value;
  const char* help;
};

constexpr Row kRows[] = {
#define NEURON_ENV(kind, id, name, default_value, help) {#kind, name, default_value, help},
#include "support/env_table.inc"
#undef NEURON_ENV
};

const std::string& Raw(Id id) {
  static std::mutex mutex;
  static std::array<std::optional<std::string>, std::size(kRows)> values;
  std::lock_guard lock(mutex);
  auto& value = values[static_cast<size_t>(id)];
  if (!value) {
    const Row& row = kRows[static_cast<size_t>(id)];
    const char* set = std::getenv(row.name);
    value = set != nullptr ? set : row.default_value;
  }
  return *value;
}

}  // namespace

bool GetBool(Id id) {
  const std::string& value = Raw(id);
  for (const char* yes : {"1", "true", "yes", "on", "TRUE", "True"}) {
    if (value == yes) return true;
  }
  for (const char* no : {"", "0", "false", "no", "off", "FALSE", "False"}) {
    if (value == no) return false;
  }
  NEURON_THROW(kInvalidArgument, kRows[static_cast<size_t>(id)].name, "='", value,
               "': expected 1 or 0");
}

int64_t GetInt(Id id) {
  const std::string& value = Raw(id);
  int64_t out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size()) {
    NEURON_THROW(kInvalidArgument, kRows[static_cast<size_t>(id)].name, "='", value,
                 "': expected an integer");
  }
  return out;
}

const std::string& GetString(Id id) { return Raw(id); }

std::vector<Description> Describe() {
  std::vector<Description> out;
  for (const Row& row : kRows) out.push_back({row.name, row.kind, row.default_value, row.help});
  return out;
}

}  // namespace neuron::env
