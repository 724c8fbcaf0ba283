// Collectives of a group that spans hosts: inside each host over shared memory, between the hosts'
// leaders over the network. Private to collectives.cc; the functions are those of collectives.h.
#pragma once

#include "distributed/collectives.h"

namespace neuron::distributed::across {

void Barrier(const Round& round);
void AllReduce(const Round& round, const Reducer& reducer, char* data, int64_t elements, int root);
void ReduceScatter(const Round& round, const Reducer& reducer, const char* in, char* out,
                   int64_t elements);
void AllGather(const Round& round, const char* in, char* out, int64_t bytes, int root);
void Broadcast(const Round& round, char* data, int64_t bytes, int root);
void Scatter(const Round& round, const char* in, char* out, int64_t bytes, int root);
void AllToAll(const Round& round, const char* in, std::span<const int64_t> in_bytes, char* out,
              std::span<const int64_t> out_bytes);

}  // namespace neuron::distributed::across
