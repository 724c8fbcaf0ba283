// What device.cc and allocator.cc need of the streams beyond stream.h.
#pragma once

#include <vector>

#include "runtime/stream.h"

namespace neuron::runtime {

// Streams of the device whose queues exist.
std::vector<Stream*> StartedStreams(int device);

}  // namespace neuron::runtime
