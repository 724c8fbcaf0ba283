// Generators: a seed and a counter of Philox 4x32-10.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <utility>

namespace neuron::aten {

// The default generator of a device (-1: the current one), made at first use with a random seed.
const at::Generator& DefaultGenerator(c10::DeviceIndex device);
at::Generator NewGenerator(c10::DeviceIndex device);

// Takes `count` counters from the generator (the device's default one if none is given): returns
// its seed and the first counter.
std::pair<uint64_t, uint64_t> ReserveRandom(const std::optional<at::Generator>& generator,
                                            int device, uint64_t count);

}  // namespace neuron::aten
