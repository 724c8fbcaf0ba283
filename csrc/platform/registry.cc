#include <map>
#include <mutex>

#include "platform/driver.h"
#include "support/error.h"

namespace neuron::platform {
namespace {

std::map<std::string, DriverFactory>& Factories() {
  static std::map<std::string, DriverFactory> factories;
  return factories;
}

std::mutex& Mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

void RegisterDriver(const std::string& name, DriverFactory factory) {
  std::lock_guard lock(Mutex());
  Factories()[name] = factory;
}

Driver& GetDriver() {
  // Never destroyed: tensors of static storage duration may be freed after every destructor here
  // has run.
  static Driver* const driver = [] {
    std::lock_guard lock(Mutex());
    const auto it = Factories().find("host");
    NEURON_CHECK(it != Factories().end(), "platform host is not registered");
    return it->second().release();
  }();
  return *driver;
}

}  // namespace neuron::platform
