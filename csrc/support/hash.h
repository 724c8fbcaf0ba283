// A fast 128-bit hash for keys in memory and file names. Not cryptographic.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace neuron {

struct Hash128 {
  uint64_t lo = 0;
  uint64_t hi = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  // 32 lower-case hexadecimal digits.
  std::string Hex() const {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out(32, '0');
    for (int i = 0; i < 16; ++i) {
      const uint64_t word = i < 8 ? hi : lo;
      const auto byte = static_cast<uint8_t>(word >> (56 - 8 * (i % 8)));
      out[2 * i] = kDigits[byte >> 4];
      out[2 * i + 1] = kDigits[byte & 15];
    }
    return out;
  }
  // The inverse of Hex; nothing if `hex` is no such text.
  static std::optional<Hash128> FromHex(std::string_view hex) {
    Hash128 key;
    const auto word = [&](size_t start, uint64_t& out) {
      const char* first = hex.data() + start;
      const auto [end, error] = std::from_chars(first, first + 16, out, 16);
      return error == std::errc() && end == first + 16;
    };
    if (hex.size() != 32 || !word(0, key.hi) || !word(16, key.lo)) return std::nullopt;
    return key;
  }
};

// Mixes 64-bit words into two lanes; Add in order, then Finish. The multipliers are the finalizer
// constants of MurmurHash3 (Austin Appleby, public domain).
class Hasher {
 public:
  void Add(uint64_t word) {
    a_ = Mix(a_ ^ word) + 0x9e3779b97f4a7c15ULL;
    b_ = Mix(b_ + word * 0xc4ceb9fe1a85ec53ULL) ^ a_;
  }
  void AddBytes(std::string_view bytes) {
    Add(bytes.size());
    size_t i = 0;
    for (; i + 8 <= bytes.size(); i += 8) {
      uint64_t word;
      std::memcpy(&word, bytes.data() + i, 8);
      Add(word);
    }
    if (i < bytes.size()) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, bytes.size() - i);
      Add(word);
    }
  }
  Hash128 Finish() const { return {Mix(a_ ^ (b_ >> 7)), Mix(b_ + a_)}; }

 private:
  static uint64_t Mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ (x >> 33);
  }
  uint64_t a_ = 0x243f6a8885a308d3ULL;  // digits of pi
  uint64_t b_ = 0x13198a2e03707344ULL;
};

inline Hash128 HashBytes(std::string_view bytes) {
  Hasher h;
  h.AddBytes(bytes);
  return h.Finish();
}

struct Hash128Hash {
  size_t operator()(const Hash128& h) const { return h.lo; }
};

}  // namespace neuron
