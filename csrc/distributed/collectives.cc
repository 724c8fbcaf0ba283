#include "distributed/collectives.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "distributed/collectives_hosts.h"
#include "support/error.h"

namespace neuron::distributed {
namespace {

constexpr auto kBufferBytes = static_cast<int64_t>(Segment::kBufferBytes);
// Smaller all-reduces are done by every rank for itself: a second step costs more.
constexpr int64_t kDirectBytes = 16 << 10;

void Copy(char* out, const char* in, int64_t bytes) {
  if (bytes > 0) std::memcpy(out, in, static_cast<size_t>(bytes));
}

// Own buffer written -> all peers' readable. Only the first step of a collective compares.
void Exchange(const Round& round, bool first) {
  round.segment.Arrive(round.description);
  round.segment.WaitForAll(round.description, first, round.deadline);
}

std::vector<const char*> Buffers(const Segment& segment, int64_t offset = 0) {
  std::vector<const char*> out;
  for (int r = 0; r < segment.size(); ++r) out.push_back(segment.Buffer(r) + offset);
  return out;
}

// Calls step(offset, n, first) for pieces of at most `piece`; at least once, so that empty tensors
// are compared too.
template <typename F>
void ForPieces(int64_t total, int64_t piece, const F& step) {
  int64_t offset = 0;
  do {
    step(offset, std::min(piece, total - offset), offset == 0);
    offset += piece;
  } while (offset < total);
}

// Every rank reduces a part of the piece that lies in the buffers, then takes the others' parts.
void ReduceInParts(const Round& round, const Reducer& reducer, char* out, int64_t n) {
  Segment& segment = round.segment;
  const auto size = static_cast<int64_t>(c10::elementSize(reducer.dtype));
  const auto begin = [&](int r) { return n * r / segment.size(); };
  const int rank = segment.rank();
  const auto sources = Buffers(segment, begin(rank) * size);
  segment.Begin();
  Reduce(reducer.reduction, reducer.dtype, reducer.factor, segment.Buffer(rank), sources,
         begin(rank + 1) - begin(rank));
  Exchange(round, false);
  for (int r = 0; r < segment.size(); ++r)
    Copy(out + begin(r) * size, segment.Buffer(r), (begin(r + 1) - begin(r)) * size);
}

}  // namespace

void CheckSent(const Round& round, int from, int to, int64_t sent, int64_t expected) {
  if (sent == expected) return;
  NEURON_THROW(kInvalidArgument, round.description.collective, " number ",
               round.description.sequence, ": rank ", from, " sends ", sent, " bytes to rank ", to,
               ", which expects ", expected);
}

void Barrier(const Round& round) {
  if (round.hosts != nullptr) return across::Barrier(round);
  round.segment.Begin();
  Exchange(round, true);
}

void AllReduce(const Round& round, const Reducer& reducer, char* data, int64_t elements, int root) {
  if (round.hosts != nullptr) return across::AllReduce(round, reducer, data, elements, root);
  Segment& segment = round.segment;
  const auto size = static_cast<int64_t>(c10::elementSize(reducer.dtype));
  ForPieces(elements, kBufferBytes / size, [&](int64_t offset, int64_t n, bool first) {
    char* piece = data + offset * size;
    segment.Begin();
    Copy(segment.Buffer(segment.rank()), piece, n * size);
    Exchange(round, first);
    if (root < 0 && n * size > kDirectBytes) {
      ReduceInParts(round, reducer, piece, n);
    } else if (root < 0 || root == segment.rank()) {
      Reduce(reducer.reduction, reducer.dtype, reducer.factor, piece, Buffers(segment), n);
    }
  });
}

void ReduceScatter(const Round& round, const Reducer& reducer, const char* in, char* out,
                   int64_t elements) {
  if (round.hosts != nullptr) return across::ReduceScatter(round, reducer, in, out, elements);
  Segment& segment = round.segment;
  const auto size = static_cast<int64_t>(c10::elementSize(reducer.dtype));
  const int64_t most = kBufferBytes / size / segment.size();
  ForPieces(elements, most, [&](int64_t offset, int64_t n, bool first) {
    segment.Begin();
    for (int r = 0; r < segment.size(); ++r)
      Copy(segment.Buffer(segment.rank()) + r * n * size, in + (r * elements + offset) * size,
           n * size);
    Exchange(round, first);
    Reduce(reducer.reduction, reducer.dtype, reducer.factor, out + offset * size,
           Buffers(segment, segment.rank() * n * size), n);
  });
}

void AllGather(const Round& round, const char* in, char* out, int64_t bytes, int root) {
  if (round.hosts != nullptr) return across::AllGather(round, in, out, bytes, root);
  Segment& segment = round.segment;
  ForPieces(bytes, kBufferBytes, [&](int64_t offset, int64_t n, bool first) {
    segment.Begin();
    Copy(segment.Buffer(segment.rank()), in + offset, n);
    Exchange(round, first);
    if (root >= 0 && root != segment.rank()) return;
    for (int r = 0; r < segment.size(); ++r) Copy(out + r * bytes + offset, segment.Buffer(r), n);
  });
}

void Broadcast(const Round& round, char* data, int64_t bytes, int root) {
  if (round.hosts != nullptr) return across::Broadcast(round, data, bytes, root);
  Segment& segment = round.segment;
  ForPieces(bytes, kBufferBytes, [&](int64_t offset, int64_t n, bool first) {
    segment.Begin();
    if (root == segment.rank()) Copy(segment.Buffer(root), data + offset, n);
    Exchange(round, first);
    if (root != segment.rank()) Copy(data + offset, segment.Buffer(root), n);
  });
}

void Scatter(const Round& round, const char* in, char* out, int64_t bytes, int root) {
  if (round.hosts != nullptr) return across::Scatter(round, in, out, bytes, root);
  Segment& segment = round.segment;
  ForPieces(bytes, kBufferBytes / segment.size(), [&](int64_t offset, int64_t n, bool first) {
    segment.Begin();
    if (root == segment.rank()) {
      for (int r = 0; r < segment.size(); ++r)
        Copy(segment.Buffer(root) + r * n, in + r * bytes + offset, n);
    }
    Exchange(round, first);
    Copy(out + offset, segment.Buffer(root) + segment.rank() * n, n);
  });
}

void AllToAll(const Round& round, const char* in, std::span<const int64_t> in_bytes, char* out,
              std::span<const int64_t> out_bytes) {
  if (round.hosts != nullptr) return across::AllToAll(round, in, in_bytes, out, out_bytes);
  Segment& segment = round.segment;
  const int size = segment.size(), rank = segment.rank();
  const int64_t slot = kBufferBytes / size;
  // First the sizes: the ranks must agree on the number of pieces.
  segment.Begin();
  Copy(segment.Buffer(rank), reinterpret_cast<const char*>(in_bytes.data()),
       static_cast<int64_t>(in_bytes.size_bytes()));
  Exchange(round, true);
  int64_t longest = 0;
  for (int r = 0; r < size; ++r) {
    std::vector<int64_t> sends(static_cast<size_t>(size));
    std::memcpy(sends.data(), segment.Buffer(r), sends.size() * sizeof(int64_t));
    longest = std::max(longest, *std::max_element(sends.begin(), sends.end()));
    const int64_t sent = sends[static_cast<size_t>(rank)];
    CheckSent(round, r, rank, sent, out_bytes[static_cast<size_t>(r)]);
  }
  ForPieces(longest, slot, [&](int64_t offset, int64_t n, bool) {
    const auto part = [&](int64_t total) { return std::clamp<int64_t>(total - offset, 0, n); };
    segment.Begin();
    int64_t start = 0;
    for (int r = 0; r < size; start += in_bytes[static_cast<size_t>(r++)])
      Copy(segment.Buffer(rank) + r * slot, in + start + offset,
           part(in_bytes[static_cast<size_t>(r)]));
    Exchange(round, false);
    start = 0;
    for (int r = 0; r < size; start += out_bytes[static_cast<size_t>(r++)])
      Copy(out + start + offset, segment.Buffer(r) + rank * slot,
           part(out_bytes[static_cast<size_t>(r)]));
  });
}

}  // namespace neuron::distributed
