// Warnings to the user.
#pragma once

#include <functional>
#include <string>

namespace neuron {

// To stderr as "torch_neuronx: warning: ...", unless a sink is set.
void Warn(const std::string& message);
// Only the first time for this key.
void WarnOnce(const std::string& key, const std::string& message);
void SetWarningSink(std::function<void(const std::string&)> sink);

}  // namespace neuron
