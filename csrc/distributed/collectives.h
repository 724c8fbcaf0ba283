// Collectives over the shared memory of a group. They block the calling thread, which is a queue's.
#pragma once

#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstdint>
#include <span>

#include "distributed/hosts.h"
#include "distributed/reduce.h"
#include "distributed/segment.h"

namespace neuron::distributed {

// One collective of one group: a segment, what is compared between the ranks, and until when to
// wait.
struct Round {
  Segment& segment;
  const Description& description;
  std::chrono::steady_clock::time_point deadline;
  const Hosts* hosts = nullptr;  // if the group spans several; the segment is this host's
};

struct Reducer {
  Reduction reduction;
  c10::ScalarType dtype;
  double factor = 1;
};

// Sizes are in bytes unless called elements. Buffers of one rank do not overlap, except that
// all-reduce and reduce work in place. Every element is reduced in the order of the ranks, whoever
// does it, so all ranks get the same bits in every run.
void Barrier(const Round& round);
// Only `root` gets the result if root >= 0.
void AllReduce(const Round& round, const Reducer& reducer, char* data, int64_t elements,
               int root = -1);
// in: [size][elements], out: [elements]
void ReduceScatter(const Round& round, const Reducer& reducer, const char* in, char* out,
                   int64_t elements);
// in: [bytes], out: [size][bytes]; only `root` gets it if root >= 0.
void AllGather(const Round& round, const char* in, char* out, int64_t bytes, int root = -1);
void Broadcast(const Round& round, char* data, int64_t bytes, int root);
// in (of the root): [size][bytes], out: [bytes]
void Scatter(const Round& round, const char* in, char* out, int64_t bytes, int root);
// Blocks lie one after the other: in by destination, out by source. Throws kInvalidArgument if a
// peer sends another number of bytes than this rank expects.
void AllToAll(const Round& round, const char* in, std::span<const int64_t> in_bytes, char* out,
              std::span<const int64_t> out_bytes);
// Throws as AllToAll: `sent` is what `from` sends to `to`.
void CheckSent(const Round& round, int from, int to, int64_t sent, int64_t expected);

}  // namespace neuron::distributed
