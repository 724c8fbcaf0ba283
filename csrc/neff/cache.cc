#include "neff/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/metrics.h"
#include "support/env.h"
#include "support/error.h"
#include "support/logging.h"

namespace neuron::neff {
namespace {

namespace fs = std::filesystem;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Why executables in this directory cannot be trusted; empty if they can.
std::string WhyUnsafe(const struct stat& info) {
  if (!S_ISDIR(info.st_mode)) return "it is not a directory";
  if (info.st_uid != geteuid()) return "it belongs to another user";
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users may write to it (chmod go-w it)";
  return "";
}

bool MakeDirectory(const fs::path& path) { return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST; }

// Each level is checked by the descriptor that was opened, so that it cannot be exchanged in between.
bool OpenSafeDirectory(const fs::path& path, std::string* why) {
  if (!MakeDirectory(path)) {
    *why = StrCat("it cannot be made (", std::strerror(errno), ")");
    return false;
  }
  const Fd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!fd.ok() || fstat(fd.get(), &info) != 0) {
    *why = StrCat("it cannot be opened as a directory (", std::strerror(errno), ")");
    return false;
  }
  *why = WhyUnsafe(info);
  return why->empty();
}

std::optional<std::string> ReadAll(int fd, size_t size) {
  std::string bytes(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t n = read(fd, bytes.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    done += static_cast<size_t>(n);
  }
  return bytes;
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

}  // namespace

struct Cache::State {
  fs::path directory;
  bool enabled = false;
  std::atomic<uint64_t> temporary{0};
  fs::path PathOf(const Hash128& key) const {
    const std::string hex = key.Hex();
    return directory / hex.substr(0, 2) / hex.substr(2, 2) / (hex + ".neff");
  }
};

Cache::Cache(fs::path directory) : state_(std::make_unique<State>()) {
  state_->directory = std::move(directory);
  std::error_code ignored;
  fs::create_directories(state_->directory.parent_path(), ignored);
  std::string why;
  state_->enabled = OpenSafeDirectory(state_->directory, &why);
  if (!state_->enabled) {
    Warn(StrCat("executables are not cached in ", state_->directory.string(), ": ", why,
                ". Set TORCH_NEURONX_NEFF_CACHE_DIR to a directory of your own"));
  }
}

Cache::~Cache() = default;

Cache& Cache::Default() {
  static Cache* const cache = [] {
    auto made = env::GetBool(env::Id::kBoolNeffDisableCache)
                    ? std::make_unique<Cache>()
                    : std::make_unique<Cache>(fs::path(env::GetString(env::Id::kStringNeffCacheDir)));
    return made.release();  // used by threads that may outlive static destruction
  }();
  return *cache;
}

Cache::Cache() : state_(std::make_unique<State>()) {}

bool Cache::enabled() const { return state_->enabled; }
const fs::path& Cache::directory() const { return state_->directory; }

std::optional<Neff> Cache::Load(const Hash128& key, std::string_view fingerprint) {
  if (!state_->enabled) return std::nullopt;
  const fs::path path = state_->PathOf(key);
  const Fd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.ok()) return std::nullopt;
  try {
    struct stat info{};
    if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
      NEURON_THROW(kInvalidArgument, "not a private regular file");
    }
    const auto bytes = ReadAll(fd.get(), static_cast<size_t>(info.st_size));
    if (!bytes) NEURON_THROW(kInvalidArgument, "cannot be read");
    Neff neff = Deserialize(*bytes);
    if (neff.fingerprint != fingerprint) NEURON_THROW(kInvalidArgument, "made by another compiler or for another CPU");
    return neff;
  } catch (const Error&) {
    runtime::GetCompilationMetrics().disk_rejected.fetch_add(1, std::memory_order_relaxed);
    unlink(path.c_str());
    return std::nullopt;
  }
}

void Cache::Store(const Hash128& key, const Neff& neff) {
  if (!state_->enabled) return;
  const fs::path path = state_->PathOf(key);
  const auto fail = [&](const char* what) {
    WarnOnce("neff-store", StrCat("cannot ", what, " ", path.string(), ": ", std::strerror(errno),
                                  "; executables are compiled again in the next process"));
  };
  if (!MakeDirectory(path.parent_path().parent_path()) || !MakeDirectory(path.parent_path())) return fail("make the directory of");
  const fs::path temporary = path.string() + "." + std::to_string(getpid()) + "." + std::to_string(++state_->temporary) + ".tmp";
  {
    const Fd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.ok()) return fail("create");
    // The data must be on disk before the name is: the directory entry itself may be lost, then the
    // executable is compiled again.
    if (!WriteAll(fd.get(), Serialize(neff)) || fdatasync(fd.get()) != 0) {
      fail("write");
      unlink(temporary.c_str());
      return;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    fail("publish");
    unlink(temporary.c_str());
    return;
  }
  runtime::GetCompilationMetrics().disk_writes.fetch_add(1, std::memory_order_relaxed);
}

std::unique_ptr<Cache::KeyLock> Cache::Lock(const Hash128& key) {
  if (!state_->enabled) return nullptr;
  const fs::path locks = state_->directory / "locks";
  if (!MakeDirectory(locks)) return nullptr;
  // One of 256 files: they are never removed, and two keys that share one only wait for each other.
  const fs::path path = locks / (key.Hex().substr(0, 2) + ".lock");
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.ok()) return nullptr;
  while (flock(fd.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return nullptr;
  }
  return std::make_unique<KeyLock>(fd.release());
}

Cache::KeyLock::~KeyLock() { close(fd_); }

}  // namespace neuron::neff
