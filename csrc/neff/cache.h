// The on-disk cache of executables: DIR/ab/cd/<key>.neff, written so that a file is whole or
// absent.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "neff/trim.h"
#include "support/fd.h"
#include "support/hash.h"

namespace neuron::neff {

// One cached executable. Sections are named byte strings ("code", "ir", "meta"...).
struct Neff {
  Hash128 key;              // what it was stored as: Store sets it, Load compares it
  std::string fingerprint;  // compiler version and CPU features it was made for
  std::vector<std::pair<std::string, std::string>> sections;
  // The first section of this name, or null.
  const std::string* Find(std::string_view name) const;
};

// Header (magic, format version, length), key, fingerprint, sections, SHA-256 of everything before
// it.
std::string Serialize(const Neff& neff);
// Throws kInvalidArgument saying what is wrong; never reads outside `bytes`, whatever they are.
Neff Deserialize(std::string_view bytes);

// Threads and processes may use one directory at the same time.
class Cache {
 public:
  // The cache that the environment names; disabled (every Load misses, Store does nothing) when
  // TORCH_NEURONX_NEFF_DISABLE_CACHE is set or the directory cannot be used safely: it must be
  // owned by this user and not writable by others (warned once, with what to do).
  static Cache& Default();
  // Holds at most about `max_bytes` (negative: any number): Store trims it from time to time.
  explicit Cache(std::filesystem::path directory, int64_t max_bytes = -1);
  // Disabled.
  Cache();

  // A file of this key with this fingerprint; damaged or foreign files count as absent, are counted
  // in metrics (disk_rejected) and removed.
  std::optional<Neff> Load(const Hash128& key, std::string_view fingerprint);
  // For a file that Load accepted but whose contents make no sense: counted and removed likewise.
  void Reject(const Hash128& key);
  // write to a temporary file, fsync, rename. Failures warn once, are counted in metrics
  // (disk_write_failures) and are otherwise ignored: nothing of the file stays.
  void Store(const Hash128& key, Neff neff);
  // See trim.h; nothing when the cache is disabled. What it removed is counted in metrics.
  Trimmed Trim(int64_t max_bytes);

  // Held while one thread compiles a key, so that others (of any process) wait and then load. An
  // flock on a file that dies with its owner. Lock returns null when the cache is disabled or not
  // writable, and when another process has held it for TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT: the
  // work is then done twice, which is harmless. Who holds several keys must take them in one order
  // everywhere.
  class KeyLock;
  std::unique_ptr<KeyLock> Lock(const Hash128& key);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;
  bool enabled() const;
  const std::filesystem::path& directory() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Cache::KeyLock {
 public:
  // `file`: locked, called `name` in the directory of locks `directory`.
  KeyLock(Fd directory, std::string name, Fd file)
      : directory_(std::move(directory)), name_(std::move(name)), file_(std::move(file)) {}
  ~KeyLock();
  KeyLock(const KeyLock&) = delete;
  KeyLock& operator=(const KeyLock&) = delete;

 private:
  Fd directory_;
  std::string name_;
  Fd file_;
};

}  // namespace neuron::neff
