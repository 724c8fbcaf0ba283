#include "platform/host/library.h"

#include <map>
#include <mutex>

#include "support/error.h"

namespace neuron::host {
namespace {

std::mutex& Mutex() {
  static std::mutex mutex;
  return mutex;
}

std::map<std::string, LibraryFn>& Functions() {
  static std::map<std::string, LibraryFn> functions;
  return functions;
}

}  // namespace

void RegisterLibraryFunction(const std::string& name, LibraryFn fn) {
  std::lock_guard lock(Mutex());
  Functions()[name] = fn;
}

LibraryFn FindLibraryFunction(const std::string& name) {
  std::lock_guard lock(Mutex());
  const auto it = Functions().find(name);
  if (it == Functions().end())
    NEURON_THROW(kUnsupported, "this platform has no library function '", name, "'");
  return it->second;
}

}  // namespace neuron::host
