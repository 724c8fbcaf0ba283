#include "runtime/metrics.h"

#include <chrono>
#include <memory>
#include <mutex>

namespace neuron::runtime {
namespace {

struct Counters {
  std::mutex mutex;
  std::map<std::string, std::unique_ptr<OpCounter>, std::less<>> ops;
};

Counters& All() {
  static auto* const counters =
      new Counters();  // references to its entries outlive static destruction
  return *counters;
}

}  // namespace

void Samples::Add(double value) {
  using Seconds = std::chrono::duration<double>;
  const double now = Seconds(std::chrono::system_clock::now().time_since_epoch()).count();
  std::lock_guard lock(mutex_);
  ++total_;
  sum_ += value;
  last_.push_back({now, value});
  if (last_.size() > kKept) last_.pop_front();
}

Samples::State Samples::Get() const {
  std::lock_guard lock(mutex_);
  return {total_, sum_, {last_.begin(), last_.end()}};
}

void CompilationMetrics::CountCode(int64_t bytes) {
  code_bytes.Add(static_cast<double>(code_bytes_now_.fetch_add(bytes) + bytes));
}

CompilationMetrics& GetCompilationMetrics() {
  static CompilationMetrics metrics;
  return metrics;
}

OpCounter& GetOpCounter(std::string_view op) {
  Counters& counters = All();
  std::lock_guard lock(counters.mutex);
  auto it = counters.ops.find(op);
  if (it == counters.ops.end()) it = counters.ops.emplace(op, std::make_unique<OpCounter>()).first;
  return *it->second;
}

bool CountFallback(std::string_view op, int64_t bytes_moved) {
  OpCounter& counter = GetOpCounter(op);
  counter.fallback_bytes.fetch_add(bytes_moved, std::memory_order_relaxed);
  return counter.fallbacks.fetch_add(1, std::memory_order_relaxed) == 0;
}

std::vector<std::string> ExecutedOps() {
  Counters& counters = All();
  std::lock_guard lock(counters.mutex);
  std::vector<std::string> out;
  for (const auto& [name, counter] : counters.ops) {
    if (counter->executed.load(std::memory_order_relaxed) > 0) out.push_back(name);
  }
  return out;
}

std::map<std::string, int64_t> LibraryOps() {
  Counters& counters = All();
  std::lock_guard lock(counters.mutex);
  std::map<std::string, int64_t> out;
  for (const auto& [name, counter] : counters.ops) {
    const int64_t calls = counter->library.load(std::memory_order_relaxed);
    if (calls > 0) out[name] = calls;
  }
  return out;
}

std::map<std::string, FallbackCount> FallbackOps() {
  Counters& counters = All();
  std::lock_guard lock(counters.mutex);
  std::map<std::string, FallbackCount> out;
  for (const auto& [name, counter] : counters.ops) {
    const int64_t calls = counter->fallbacks.load(std::memory_order_relaxed);
    if (calls > 0) out[name] = {calls, counter->fallback_bytes.load(std::memory_order_relaxed)};
  }
  return out;
}

void ClearOpTracking() {
  Counters& counters = All();
  std::lock_guard lock(counters.mutex);
  for (auto& [name, counter] : counters.ops) {
    counter->executed.store(0, std::memory_order_relaxed);
    counter->library.store(0, std::memory_order_relaxed);
    counter->fallbacks.store(0, std::memory_order_relaxed);
    counter->fallback_bytes.store(0, std::memory_order_relaxed);
  }
}

}  // namespace neuron::runtime
