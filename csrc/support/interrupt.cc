#include "support/interrupt.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <map>
#include <utility>

namespace neuron::interrupt {
namespace {

struct Registry {
  std::mutex mutex;
  Check check;
  int next_id = 0;
  std::map<int, std::function<void()>> aborts;
};

Registry& Get() {
  static Registry* registry = new Registry;  // used until the process ends
  return *registry;
}

}  // namespace

void SetCheck(Check check) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  registry.check = std::move(check);
}

int AddAbort(std::function<void()> abort) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  registry.aborts.emplace(registry.next_id, std::move(abort));
  return registry.next_id++;
}

void RemoveAbort(int id) {
  Registry& registry = Get();
  const std::lock_guard lock(registry.mutex);
  registry.aborts.erase(id);
}

bool Waiter::InMainThread() {
  static thread_local const bool main = syscall(SYS_gettid) == getpid();
  return main;
}

void Waiter::Poll() {
  if (!InMainThread() || thrown_ != nullptr) return;
  Registry& registry = Get();
  Check check;
  {
    const std::lock_guard lock(registry.mutex);
    check = registry.check;
  }
  if (check == nullptr) return;
  thrown_ = check();
  if (thrown_ == nullptr) return;
  const std::lock_guard lock(registry.mutex);
  for (const auto& [id, abort] : registry.aborts) abort();
}

}  // namespace neuron::interrupt
