#include "neff/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "neff/directory.h"
#include "runtime/metrics.h"
#include "support/env.h"
#include "support/error.h"
#include "support/logging.h"

namespace neuron::neff {
namespace {

namespace fs = std::filesystem;

// Far above any executable: a larger file is damaged.
constexpr int64_t kMaxFileBytes = int64_t{1} << 30;
// How old a file's time of last use may be before Load renews it: not every use is a write.
constexpr int64_t kUsedSeconds = 60;

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
    if (n == 0) errno = EIO;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

int64_t MaxBytes() {
  const int64_t megabytes = env::GetInt(env::Id::kIntNeffCacheMaxSizeMb);
  if (megabytes < 0 || megabytes > (int64_t{1} << 40)) {
    NEURON_THROW(kInvalidArgument, "TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB=", megabytes,
                 ": expected a number of megabytes, or 0 for no limit");
  }
  return megabytes == 0 ? -1 : megabytes << 20;
}

// The access time is the time of the last use, whatever the file system is mounted with.
void MarkUsed(const Fd& fd) {
  struct stat info{};
  timespec now{};
  if (fstat(fd.get(), &info) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0) return;
  if (std::llabs(int64_t{now.tv_sec} - info.st_atim.tv_sec) < kUsedSeconds) return;
  const timespec times[] = {now, {0, UTIME_OMIT}};
  futimens(fd.get(), times);  // a read-only file system cannot tell; nothing is lost
}

// Asks again and again: a blocking flock has no time limit. False with errno EWOULDBLOCK after the
// deadline.
bool WaitForLock(const Fd& file, std::chrono::steady_clock::time_point deadline) {
  auto pause = std::chrono::milliseconds(1);
  while (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK || std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(32));
  }
  return true;
}

void Count(std::atomic<int64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

// Writes a file so that its name appears when it is whole. Null, or what failed with errno set.
const char* Publish(const Fd& directory, const std::string& temporary, const std::string& name,
                    std::string_view bytes) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Fd fd(openat(directory.get(), temporary.c_str(), kFlags, 0600));
  if (!fd.ok()) return "create";
  // Held while its writer lives: a file that can be locked was left behind. Best effort: a file
  // system without locks has no trimming of such files.
  flock(fd.get(), LOCK_EX | LOCK_NB);
  // The bytes must be on disk before the name is, else a crash could leave an empty file (found
  // out, but only by its checksum). The name itself may be lost: the executable is then compiled
  // again.
  if (!WriteAll(fd.get(), bytes) || fdatasync(fd.get()) != 0) return "write";
  if (renameat(directory.get(), temporary.c_str(), directory.get(), name.c_str()) != 0)
    return "publish";
  return nullptr;
}

// Throws kInvalidArgument unless the file may be executed as what it is called.
Neff ReadChecked(const Fd& fd, const Hash128& key, std::string_view fingerprint) {
  struct stat info{};
  if (!fd.ok() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != geteuid() || (info.st_mode & kOthersWrite) != 0 ||
      info.st_size > kMaxFileBytes) {
    NEURON_THROW(kInvalidArgument, "not a private regular file");
  }
  const auto bytes = ReadAll(fd.get(), static_cast<size_t>(info.st_size));
  if (!bytes) NEURON_THROW(kInvalidArgument, "cannot be read");
  Neff neff = Deserialize(*bytes);
  if (neff.key != key) NEURON_THROW(kInvalidArgument, "stored under another key");
  // The key was made from the fingerprint too, so another one means damage, not another compiler.
  if (neff.fingerprint != fingerprint)
    NEURON_THROW(kInvalidArgument, "made by another compiler or for another CPU");
  return neff;
}

}  // namespace

struct Cache::State {
  fs::path path;
  Fd directory;  // not ok: disabled
  int64_t max_bytes = -1;
  // What this process may still write before it trims: nothing at first, so that each process that
  // writes looks once.
  std::atomic<int64_t> bytes_until_trim{0};
  std::mutex trimming;
  std::atomic<uint64_t> temporaries{0};

  // DIR/ab/cd of a key.
  Fd OpenLevel(const std::string& hex, bool create) const {
    const Fd first = OpenDirectory(directory.get(), hex.substr(0, 2), create);
    return first.ok() ? OpenDirectory(first.get(), hex.substr(2, 2), create) : Fd();
  }

  // Unlike any that a process which died left behind, even one of the same number.
  std::string TemporaryName(const std::string& hex) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return StrCat(hex, ".", getpid(), ".", ++temporaries, ".",
                  std::chrono::nanoseconds(now).count(), ".tmp");
  }
};

Cache::Cache() : state_(std::make_unique<State>()) {}

Cache::Cache(fs::path directory, int64_t max_bytes) : Cache() {
  state_->path = WithoutSlashes(std::move(directory));
  state_->max_bytes = max_bytes;
  MakeParents(state_->path);
  state_->directory = OpenDirectory(AT_FDCWD, state_->path.string(), true);
  if (state_->directory.ok()) return;
  const int error = errno;
  std::string why = WhyUnsafe(state_->path);
  if (why.empty()) why = StrCat("it cannot be made (", std::strerror(error), ")");
  Warn(StrCat("executables are not cached in ", state_->path.string(), ": ", why,
              ". Set TORCH_NEURONX_NEFF_CACHE_DIR to a directory of your own"));
}

Cache::~Cache() = default;

Cache& Cache::Default() {
  static Cache* const cache = [] {
    auto made = env::GetBool(env::Id::kBoolNeffDisableCache)
                    ? std::make_unique<Cache>()
                    : std::make_unique<Cache>(
                          fs::path(env::GetString(env::Id::kStringNeffCacheDir)), MaxBytes());
    return made.release();  // used by threads that may outlive static destruction
  }();
  return *cache;
}

bool Cache::enabled() const { return state_->directory.ok(); }
const fs::path& Cache::directory() const { return state_->path; }

std::optional<Neff> Cache::Load(const Hash128& key, std::string_view fingerprint) {
  if (!enabled()) return std::nullopt;
  const std::string hex = key.Hex();
  const Fd level = state_->OpenLevel(hex, false);
  if (!level.ok()) return std::nullopt;
  const std::string name = hex + ".neff";
  // O_NONBLOCK: a named pipe in its place must not stop the process.
  const Fd fd(openat(level.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.ok() && errno != ELOOP && errno != ENXIO) return std::nullopt;
  try {
    Neff neff = ReadChecked(fd, key, fingerprint);
    MarkUsed(fd);
    return neff;
  } catch (const Error&) {
    Count(runtime::GetCompilationMetrics().disk_rejected);
    unlinkat(level.get(), name.c_str(), 0);
    return std::nullopt;
  }
}

void Cache::Reject(const Hash128& key) {
  const std::string hex = key.Hex();
  const Fd level = enabled() ? state_->OpenLevel(hex, false) : Fd();
  if (!level.ok()) return;
  Count(runtime::GetCompilationMetrics().disk_rejected);
  unlinkat(level.get(), (hex + ".neff").c_str(), 0);
}

void Cache::Store(const Hash128& key, Neff neff) {
  if (!enabled()) return;
  const std::string hex = key.Hex();
  const std::string name = hex + ".neff";
  const auto fail = [&](std::string_view what, const std::string& reason) {
    Count(runtime::GetCompilationMetrics().disk_write_failures);
    WarnOnce("neff-store", StrCat("cannot ", what, " ", name, " in ", state_->path.string(), ": ",
                                  reason, "; executables are compiled again in the next process"));
  };
  neff.key = key;
  const std::string bytes = Serialize(neff);
  const auto size = static_cast<int64_t>(bytes.size());
  if (state_->max_bytes >= 0 && size > state_->max_bytes) {
    return fail("keep", StrCat("its ", size, " bytes are more than the cache may hold (set ",
                               "TORCH_NEURONX_NEFF_CACHE_MAX_SIZE_MB)"));
  }
  const Fd level = state_->OpenLevel(hex, true);
  if (!level.ok()) return fail("make the directory of", std::strerror(errno));
  const std::string temporary = state_->TemporaryName(hex);
  if (const char* failed = Publish(level, temporary, name, bytes)) {
    const std::string reason = std::strerror(errno);
    unlinkat(level.get(), temporary.c_str(), 0);
    return fail(failed, reason);
  }
  Count(runtime::GetCompilationMetrics().disk_writes);
  if (state_->bytes_until_trim.fetch_sub(size, std::memory_order_relaxed) >= size) return;
  const std::unique_lock only(state_->trimming, std::try_to_lock);
  if (only.owns_lock()) Trim(state_->max_bytes);
}

Trimmed Cache::Trim(int64_t max_bytes) {
  if (!enabled()) return {};
  const Trimmed trimmed = neff::Trim(state_->directory, max_bytes);
  auto& metrics = runtime::GetCompilationMetrics();
  metrics.disk_evicted.fetch_add(trimmed.evicted_files, std::memory_order_relaxed);
  metrics.disk_stale_removed.fetch_add(trimmed.stale_files, std::memory_order_relaxed);
  // Other processes write too: each may exceed the limit by a sixteenth before it looks again.
  const int64_t room = std::min(state_->max_bytes - trimmed.bytes, state_->max_bytes / 16);
  state_->bytes_until_trim.store(state_->max_bytes < 0 ? INT64_MAX : std::max<int64_t>(room, 0),
                                 std::memory_order_relaxed);
  return trimmed;
}

std::unique_ptr<Cache::KeyLock> Cache::Lock(const Hash128& key) {
  if (!enabled()) return nullptr;
  Fd locks = OpenDirectory(state_->directory.get(), "locks", true);
  if (!locks.ok()) return nullptr;
  const std::string name = key.Hex() + ".lock";
  const auto deadline = std::chrono::steady_clock::now() +
                        std::chrono::seconds(env::GetInt(env::Id::kIntNeffCacheLockTimeout));
  for (;;) {
    Fd file(openat(locks.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.ok()) return nullptr;
    if (!WaitForLock(file, deadline)) {
      if (errno == EWOULDBLOCK) {
        Count(runtime::GetCompilationMetrics().lock_timeouts);
        WarnOnce(
            "neff-lock",
            StrCat("another process has held ", name, " in ", (state_->path / "locks").string(),
                   " too long (is it stopped?): compiling without waiting for it"));
      }
      return nullptr;
    }
    // Its last holder may have removed the file while this thread waited: then the lock is on
    // nothing.
    struct stat locked{}, named{};
    if (fstat(file.get(), &locked) != 0) return nullptr;
    if (fstatat(locks.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
      return std::make_unique<KeyLock>(std::move(locks), name, std::move(file));
    }
  }
}

// Removed while locked, so that whoever waits for this file sees that it is gone and starts anew.
Cache::KeyLock::~KeyLock() {
  unlinkat(directory_.get(), name_.c_str(), 0);
  flock(file_.get(), LOCK_UN);  // a forked child may hold the same descriptor open
}

}  // namespace neuron::neff
