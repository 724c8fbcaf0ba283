#include "aten/call_site.h"

#include <atomic>

namespace neuron::aten {
namespace {
std::atomic<std::string (*)()> call_site_provider{nullptr};
}  // namespace

std::string PythonCallSite() {
  auto* provider = call_site_provider.load();
  return provider != nullptr ? provider() : std::string();
}

void SetCallSiteProvider(std::string (*provider)()) { call_site_provider.store(provider); }

}  // namespace neuron::aten
