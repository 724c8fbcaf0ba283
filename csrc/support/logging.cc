#include "support/logging.h"

#include <cstdio>
#include <mutex>
#include <set>

namespace neuron {
namespace {

struct State {
  std::mutex mutex;
  std::set<std::string> seen;
  std::function<void(const std::string&)> sink;
};

State& Get() {
  static auto* const state = new State();  // warnings may come while the process exits
  return *state;
}

}  // namespace

void Warn(const std::string& message) {
  std::function<void(const std::string&)> sink;
  {
    std::lock_guard lock(Get().mutex);
    sink = Get().sink;
  }
  if (sink) {
    sink(message);
  } else {
    std::fprintf(stderr, "torch_neuronx: warning: %s\n", message.c_str());
  }
}

void WarnOnce(const std::string& key, const std::string& message) {
  {
    std::lock_guard lock(Get().mutex);
    if (!Get().seen.insert(key).second) return;
  }
  Warn(message);
}

void SetWarningSink(std::function<void(const std::string&)> sink) {
  std::lock_guard lock(Get().mutex);
  Get().sink = std::move(sink);
}

}  // namespace neuron
