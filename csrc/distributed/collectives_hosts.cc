#include "distributed/collectives_hosts.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "support/error.h"

namespace neuron::distributed::across {
namespace {

// What is reduced or gathered at once, to bound the memory that it takes.
constexpr int64_t kPieceBytes = 4 << 20;

// The part inside this host.
Round Inside(const Round& round) {
  return {round.segment, round.description, round.deadline, nullptr};
}

// Runs what the leaders do together; its error says who and in what.
template <typename F>
void Between(const Round& round, const F& exchange) {
  const Hosts& hosts = *round.hosts;
  try {
    exchange();
  } catch (const std::exception& error) {
    std::string leaders;
    for (int host = 0; host < hosts.count(); ++host)
      leaders += StrCat(host == 0 ? "" : ", ", hosts.RanksOf(host).front());
    const std::string text = error.what();
    NEURON_THROW(kFailedExecution, "rank ", hosts.rank(), " failed in ", Text(round.description),
                 ", in the exchange between the hosts of ranks ", leaders, ": ",
                 text.substr(0, text.find('\n')));
  }
}

// All ranks have come and are in the same collective.
void Agree(const Round& round) {
  distributed::Barrier(Inside(round));
  const Hosts& hosts = *round.hosts;
  if (!hosts.leads()) return;
  std::vector<Description> all(static_cast<size_t>(hosts.count()));
  Between(round, [&] {
    hosts.AllGather(reinterpret_cast<const char*>(&round.description),
                    reinterpret_cast<char*>(all.data()), sizeof(Description), round.deadline);
  });
  for (int host = 0; host < hosts.count(); ++host) {
    const Description& other = all[static_cast<size_t>(host)];
    if (Same(round.description, other)) continue;
    NEURON_THROW(kFailedExecution, "ranks do not agree: rank ", hosts.rank(), " is in ",
                 Text(round.description), "; rank ", hosts.RanksOf(host).front(), " is in ",
                 Text(other));
  }
}

template <typename T>
void Widen(const char* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(reinterpret_cast<const T*>(in)[i]);
}

template <typename T>
void Narrow(const float* in, char* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(out)[i] = static_cast<T>(in[i]);
}

template <typename T>
void DivideTyped(char* data, int64_t n, int by) {
  auto* values = reinterpret_cast<T*>(data);
  for (int64_t i = 0; i < n; ++i) values[i] = static_cast<T>(values[i] / static_cast<T>(by));
}

void Divide(c10::ScalarType dtype, char* data, int64_t n, int by) {
  switch (dtype) {
#define NEURON_CASE(name, type) \
  case c10::ScalarType::name:   \
    return DivideTyped<type>(data, n, by);
    NEURON_CASE(Float, float)
    NEURON_CASE(Double, double)
    NEURON_CASE(Byte, uint8_t)
    NEURON_CASE(Char, int8_t)
    NEURON_CASE(Short, int16_t)
    NEURON_CASE(Int, int32_t)
    NEURON_CASE(Long, int64_t)
#undef NEURON_CASE
    default:
      NEURON_THROW(kInternal, "an average of ", c10::toString(dtype));
  }
}

// Inside the hosts, then between them, then back. `data`: [n], of a dtype that sums are kept in.
void ReducePiece(const Round& round, const Reducer& reducer, char* data, int64_t n) {
  const Hosts& hosts = *round.hosts;
  const auto bytes = n * static_cast<int64_t>(c10::elementSize(reducer.dtype));
  const bool averages = reducer.reduction == Reduction::kAverage;
  const Reduction reduction = averages ? Reduction::kSum : reducer.reduction;
  distributed::AllReduce(Inside(round), {reduction, reducer.dtype, reducer.factor}, data, n, 0);
  if (hosts.leads()) {
    std::vector<char> partial(static_cast<size_t>(bytes * hosts.count()));
    Between(round, [&] { hosts.AllGather(data, partial.data(), bytes, round.deadline); });
    std::vector<const char*> sources;
    for (int host = 0; host < hosts.count(); ++host)
      sources.push_back(partial.data() + host * bytes);
    Reduce(reduction, reducer.dtype, 1, data, sources, n);
    if (averages) Divide(reducer.dtype, data, n, hosts.size());
  }
  distributed::Broadcast(Inside(round), data, bytes, 0);
}

// 16 bit dtypes go in float32, so that they are rounded once.
template <typename T>
void ReduceWide(const Round& round, const Reducer& reducer, const char* in, char* out, int64_t n) {
  std::vector<float> wide(static_cast<size_t>(n));
  Widen<T>(in, wide.data(), n);
  ReducePiece(round, {reducer.reduction, c10::ScalarType::Float, reducer.factor},
              reinterpret_cast<char*>(wide.data()), n);
  if (out != nullptr) Narrow<T>(wide.data(), out, n);
}

}  // namespace

void Barrier(const Round& round) {
  Agree(round);
  distributed::Barrier(Inside(round));
}

void AllReduce(const Round& round, const Reducer& reducer, char* data, int64_t elements, int root) {
  Agree(round);
  const auto size = static_cast<int64_t>(c10::elementSize(reducer.dtype));
  const bool takes = root < 0 || root == round.hosts->rank();
  for (int64_t offset = 0; offset < elements; offset += kPieceBytes / size) {
    const int64_t n = std::min(kPieceBytes / size, elements - offset);
    char* piece = data + offset * size;
    char* out = takes ? piece : nullptr;
    if (reducer.dtype == c10::ScalarType::BFloat16) {
      ReduceWide<c10::BFloat16>(round, reducer, piece, out, n);
    } else if (reducer.dtype == c10::ScalarType::Half) {
      ReduceWide<c10::Half>(round, reducer, piece, out, n);
    } else if (takes) {
      ReducePiece(round, reducer, piece, n);
    } else {
      std::vector<char> copy(piece, piece + n * size);
      ReducePiece(round, reducer, copy.data(), n);
    }
  }
}

void ReduceScatter(const Round& round, const Reducer& reducer, const char* in, char* out,
                   int64_t elements) {
  const auto bytes = elements * static_cast<int64_t>(c10::elementSize(reducer.dtype));
  const Hosts& hosts = *round.hosts;
  std::vector<char> all(in, in + bytes * hosts.size());
  across::AllReduce(round, reducer, all.data(), elements * hosts.size(), -1);
  std::copy_n(all.data() + hosts.rank() * bytes, bytes, out);
}

void AllGather(const Round& round, const char* in, char* out, int64_t bytes, int root) {
  Agree(round);
  const Hosts& hosts = *round.hosts;
  const bool wanted = root < 0 || hosts.HostOf(root) == hosts.own();
  for (int64_t offset = 0; offset < bytes; offset += kPieceBytes) {
    const int64_t n = std::min(kPieceBytes, bytes - offset);
    std::vector<char> all(static_cast<size_t>(n * hosts.size()));  // by host, then by rank
    char* block = all.data();
    for (int host = 0; host < hosts.count(); ++host) {
      const auto length = n * static_cast<int64_t>(hosts.RanksOf(host).size());
      if (host == hosts.own()) distributed::AllGather(Inside(round), in + offset, block, n, 0);
      if (hosts.leads())
        Between(round, [&] { hosts.Broadcast(block, length, host, round.deadline); });
      block += length;
    }
    if (!wanted) continue;
    distributed::Broadcast(Inside(round), all.data(), n * hosts.size(), 0);
    if (root >= 0 && root != hosts.rank()) continue;
    const char* from = all.data();
    for (int host = 0; host < hosts.count(); ++host) {
      for (const int rank : hosts.RanksOf(host)) {
        std::copy_n(from, n, out + rank * bytes + offset);
        from += n;
      }
    }
  }
}

void Broadcast(const Round& round, char* data, int64_t bytes, int root) {
  Agree(round);
  const Hosts& hosts = *round.hosts;
  const int source = hosts.HostOf(root);
  const bool here = source == hosts.own();
  if (here) distributed::Broadcast(Inside(round), data, bytes, hosts.LocalOf(root));
  if (hosts.leads()) Between(round, [&] { hosts.Broadcast(data, bytes, source, round.deadline); });
  if (!here) distributed::Broadcast(Inside(round), data, bytes, 0);
}

void Scatter(const Round& round, const char* in, char* out, int64_t bytes, int root) {
  const Hosts& hosts = *round.hosts;
  std::vector<char> all(static_cast<size_t>(bytes * hosts.size()));
  if (root == hosts.rank() && bytes > 0) std::memcpy(all.data(), in, all.size());
  across::Broadcast(round, all.data(), bytes * hosts.size(), root);
  std::copy_n(all.data() + hosts.rank() * bytes, bytes, out);
}

void AllToAll(const Round& round, const char* in, std::span<const int64_t> in_bytes, char* out,
              std::span<const int64_t> out_bytes) {
  const Hosts& hosts = *round.hosts;
  const auto size = static_cast<size_t>(hosts.size());
  const auto rank = static_cast<size_t>(hosts.rank());
  std::vector<int64_t> sizes(size * size);  // by sender, then by receiver
  across::AllGather(round, reinterpret_cast<const char*>(in_bytes.data()),
                    reinterpret_cast<char*>(sizes.data()),
                    static_cast<int64_t>(in_bytes.size_bytes()), -1);
  int64_t most = 0;
  for (size_t r = 0; r < size; ++r) {
    const auto row = sizes.begin() + static_cast<std::ptrdiff_t>(r * size);
    most =
        std::max(most, std::accumulate(row, row + static_cast<std::ptrdiff_t>(size), int64_t{0}));
    CheckSent(round, static_cast<int>(r), static_cast<int>(rank), sizes[r * size + rank],
              out_bytes[r]);
  }
  // Everything goes everywhere: simple, and rarely used between hosts.
  std::vector<char> own(static_cast<size_t>(most)), all(static_cast<size_t>(most) * size);
  std::copy_n(in, std::accumulate(in_bytes.begin(), in_bytes.end(), int64_t{0}), own.data());
  across::AllGather(round, own.data(), all.data(), most, -1);
  for (size_t r = 0; r < size; ++r) {
    const auto row = sizes.begin() + static_cast<std::ptrdiff_t>(r * size);
    const int64_t start = std::accumulate(row, row + static_cast<std::ptrdiff_t>(rank), int64_t{0});
    out = std::copy_n(all.data() + static_cast<int64_t>(r) * most + start, out_bytes[r], out);
  }
}

}  // namespace neuron::distributed::across
