// The engines behind sort, argsort and cumulative sums: one line of a tensor at a time.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/thread_pool.h"
#include "platform/host/engines.h"
#include "platform/host/library.h"
#include "support/error.h"

namespace neuron::host {
namespace {

// Elements that one thread should at least be given.
constexpr int64_t kGrain = 1 << 14;
constexpr size_t kRadixFrom = 512;  // below, comparing is faster than counting digits

float WidenHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t rest = bits & 0x7fff;
  if (rest >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // Scaling by 2^112 moves the exponent's bias, for denormals too.
  return std::bit_cast<float>(sign |
                              std::bit_cast<uint32_t>(std::bit_cast<float>(rest << 13) * 0x1p112f));
}

template <typename T>
T Read(const char* p) {
  T out;
  std::memcpy(&out, p, sizeof out);
  return out;
}

double LoadFloat(DType dtype, const char* p) {
  switch (dtype) {
    case DType::kF32:
      return Read<float>(p);
    case DType::kF16:
      return WidenHalf(Read<uint16_t>(p));
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(Read<uint16_t>(p)) << 16);
    default:
      return Read<double>(p);
  }
}

int64_t LoadInteger(DType dtype, const char* p) {
  switch (dtype) {
    case DType::kI64:
      return Read<int64_t>(p);
    case DType::kI32:
      return Read<int32_t>(p);
    case DType::kI16:
      return Read<int16_t>(p);
    case DType::kI8:
      return Read<int8_t>(p);
    case DType::kU8:
    case DType::kBool:
      return Read<uint8_t>(p);
    default:
      NEURON_THROW(kUnsupported, "sort: no order of ", Name(dtype));
  }
}

// A number whose unsigned order is the element's: NaN above everything, -0 as 0.
uint64_t Key(DType dtype, const char* p) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if (!IsFloat(dtype)) return static_cast<uint64_t>(LoadInteger(dtype, p)) ^ kSign;
  const double value = LoadFloat(dtype, p);
  if (std::isnan(value)) return ~uint64_t{0};
  const auto bits = std::bit_cast<uint64_t>(value == 0 ? 0.0 : value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

struct Item {
  uint64_t key;
  int64_t index;
};

// Stable, by bytes from the lowest; bytes in which all keys agree cost one pass of counting.
void RadixSort(std::vector<Item>& items, std::vector<Item>& other) {
  other.resize(items.size());
  for (int shift = 0; shift < 64; shift += 8) {
    std::array<size_t, 256> start{};
    for (const Item& item : items) ++start[item.key >> shift & 255];
    if (start[items[0].key >> shift & 255] == items.size()) continue;
    size_t sum = 0;
    for (size_t& s : start) sum += std::exchange(s, sum);
    for (const Item& item : items) other[start[item.key >> shift & 255]++] = item;
    items.swap(other);
  }
}

// The lines along `dim` of several tensors of one shape: calls fn(offset of x, offset of out), in
// elements.
template <typename Fn>
void ForLines(const TensorDesc& x, const TensorDesc& out, size_t dim, Fn fn) {
  int64_t lines = 1;
  for (size_t d = 0; d < x.dims.size(); ++d) lines *= d == dim ? 1 : x.dims[d];
  const int64_t run = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, x.dims[dim]));
  const auto task = [&](int64_t t) {
    for (int64_t line = t * run; line < std::min(lines, (t + 1) * run); ++line) {
      int64_t rest = line, from = 0, to = 0;
      for (size_t d = x.dims.size(); d-- > 0;) {
        if (d == dim) continue;
        from += rest % x.dims[d] * x.strides[d];
        to += rest % x.dims[d] * out.strides[d];
        rest /= x.dims[d];
      }
      fn(from, to);
    }
  };
  const int64_t tasks = (lines + run - 1) / run;
  if (tasks <= 1) {
    for (int64_t t = 0; t < tasks; ++t) task(t);
  } else {
    kernels::ThreadPool::Get().ParallelFor(tasks, task);
  }
}

// tensors: x, indices i64 of the same shape; ints: dim, descending.
void ArgSort(const LibraryCall& call) {
  const TensorDesc& x = call.tensors[0];
  const TensorDesc& out = call.tensors[1];
  const auto dim = static_cast<size_t>(call.attributes.ints[0]);
  const uint64_t flip = call.attributes.ints[1] != 0 ? ~uint64_t{0} : 0;
  const int64_t bytes = ByteSize(x.dtype);
  const auto* data = static_cast<const char*>(call.data[0]);
  auto* indices = static_cast<int64_t*>(call.data[1]);
  ForLines(x, out, dim, [&](int64_t from, int64_t to) {
    thread_local std::vector<Item> items, other;
    items.resize(static_cast<size_t>(x.dims[dim]));
    for (int64_t i = 0; i < x.dims[dim]; ++i) {
      const char* element = data + (from + i * x.strides[dim]) * bytes;
      items[static_cast<size_t>(i)] = {Key(x.dtype, element) ^ flip, i};
    }
    if (items.size() >= kRadixFrom) {
      RadixSort(items, other);
    } else {
      std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
        return a.key != b.key ? a.key < b.key : a.index < b.index;
      });
    }
    for (int64_t i = 0; i < x.dims[dim]; ++i)
      indices[to + i * out.strides[dim]] = items[static_cast<size_t>(i)].index;
  });
}

void StoreFloat(DType dtype, char* p, double value) {
  if (dtype == DType::kF64) {
    std::memcpy(p, &value, sizeof value);
  } else {
    const auto narrow = static_cast<float>(value);
    std::memcpy(p, &narrow, sizeof narrow);
  }
}

double LogAddExp(double a, double b) {
  const double high = std::max(a, b);
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::quiet_NaN();
  return std::isinf(high) ? high : high + std::log1p(std::exp(std::min(a, b) - high));
}

double Combine(double a, double b, int kind) {
  return kind == 0 ? a + b : kind == 1 ? a * b : LogAddExp(a, b);
}
uint64_t Combine(uint64_t a, uint64_t b, int kind) { return kind == 0 ? a + b : a * b; }

// tensors: x and the running sums (products, log-sum-exps), both f32, f64 or i64; ints: dim. Sums
// run in f64, so a line's end is as exact as its start; integers wrap around.
template <int kKind>
void Cumulate(const LibraryCall& call) {
  const TensorDesc& x = call.tensors[0];
  const TensorDesc& out = call.tensors[1];
  const auto dim = static_cast<size_t>(call.attributes.ints[0]);
  const int64_t bytes = ByteSize(x.dtype);
  const auto* data = static_cast<const char*>(call.data[0]);
  auto* result = static_cast<char*>(call.data[1]);
  if (x.dtype != DType::kF32 && x.dtype != DType::kF64 && x.dtype != DType::kI64)
    NEURON_THROW(kUnsupported, "cumulative sums of ", Name(x.dtype));
  ForLines(x, out, dim, [&](int64_t from, int64_t to) {
    const auto walk = [&](auto sum, const auto& load, const auto& store) {
      for (int64_t i = 0; i < x.dims[dim]; ++i) {
        const auto value = load(data + (from + i * x.strides[dim]) * bytes);
        sum = i == 0 ? value : Combine(sum, value, kKind);
        store(result + (to + i * out.strides[dim]) * bytes, sum);
      }
    };
    if (IsFloat(x.dtype)) {
      walk(
          0.0, [&](const char* p) { return LoadFloat(x.dtype, p); },
          [&](char* p, double v) { StoreFloat(x.dtype, p, v); });
    } else {
      walk(uint64_t{0}, Read<uint64_t>, [](char* p, uint64_t v) { std::memcpy(p, &v, sizeof v); });
    }
  });
}

}  // namespace

void RegisterOrderEngines() {
  RegisterLibraryFunction("argsort", ArgSort);
  RegisterLibraryFunction("cumulative_add", Cumulate<0>);
  RegisterLibraryFunction("cumulative_multiply", Cumulate<1>);
  RegisterLibraryFunction("cumulative_logaddexp", Cumulate<2>);
}

}  // namespace neuron::host
