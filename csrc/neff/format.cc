// The file: magic, format version, payload length (u64, little-endian), payload, SHA-256 of all
// before it. The payload: key (its two words), fingerprint, number of sections, then name and bytes
// of each, every string with its length (u64). The key is inside so that a file under another name
// is found out.
#include <cstring>

#include "neff/cache.h"
#include "support/error.h"
#include "support/sha256.h"

namespace neuron::neff {
namespace {

constexpr std::string_view kMagic = "NEURONXH";  // software NeuronCore executable
constexpr uint64_t kVersion = 2;
constexpr size_t kHeader = 24;
constexpr size_t kDigest = 32;

void PutInt(std::string& out, uint64_t value) {
  for (int i = 0; i < 8; ++i) out += static_cast<char>(value >> (8 * i));
}

void PutString(std::string& out, std::string_view value) {
  PutInt(out, value.size());
  out += value;
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t Int() {
    const std::string_view raw = Take(8);
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i)
      value |= static_cast<uint64_t>(static_cast<uint8_t>(raw[static_cast<size_t>(i)])) << (8 * i);
    return value;
  }
  std::string String() {
    const uint64_t size = Int();
    return std::string(Take(size));
  }
  std::string_view Take(uint64_t size) {
    if (size > bytes_.size()) NEURON_THROW(kInvalidArgument, "damaged NEFF: it ends too early");
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }
  bool done() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
};

}  // namespace

const std::string* Neff::Find(std::string_view name) const {
  for (const auto& [key, value] : sections) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string Serialize(const Neff& neff) {
  std::string payload;
  PutInt(payload, neff.key.hi);
  PutInt(payload, neff.key.lo);
  PutString(payload, neff.fingerprint);
  PutInt(payload, neff.sections.size());
  for (const auto& [name, bytes] : neff.sections) {
    PutString(payload, name);
    PutString(payload, bytes);
  }
  std::string out(kMagic);
  PutInt(out, kVersion);
  PutInt(out, payload.size());
  out += payload;
  const auto digest = Sha256(out);
  out.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  return out;
}

Neff Deserialize(std::string_view bytes) {
  Reader reader(bytes);
  if (reader.Take(kMagic.size()) != kMagic)
    NEURON_THROW(kInvalidArgument, "not a NEFF of the platform host");
  const uint64_t version = reader.Int();
  if (version != kVersion)
    NEURON_THROW(kInvalidArgument, "NEFF format version ", version, ", expected ", kVersion);
  const uint64_t size = reader.Int();
  if (bytes.size() < kHeader + kDigest || size != bytes.size() - kHeader - kDigest) {
    NEURON_THROW(kInvalidArgument, "damaged NEFF: wrong length");
  }
  const auto digest = Sha256(bytes.substr(0, bytes.size() - kDigest));
  if (std::memcmp(digest.data(), bytes.data() + bytes.size() - kDigest, kDigest) != 0) {
    NEURON_THROW(kInvalidArgument, "damaged NEFF: wrong checksum");
  }
  Reader payload(reader.Take(size));
  Neff neff;
  neff.key.hi = payload.Int();
  neff.key.lo = payload.Int();
  neff.fingerprint = payload.String();
  const uint64_t sections = payload.Int();
  for (uint64_t i = 0; i < sections; ++i) {
    std::string name = payload.String();
    neff.sections.emplace_back(std::move(name), payload.String());
  }
  if (!payload.done()) NEURON_THROW(kInvalidArgument, "damaged NEFF: bytes after the last section");
  return neff;
}

}  // namespace neuron::neff
