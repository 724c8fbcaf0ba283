#include "neff/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "runtime/metrics.h"
#include "support/env.h"
#include "support/error.h"
#include "support/logging.h"

namespace neuron::neff {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1}
                                  << 30;  // far above any executable: a larger file is damaged
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

// Why executables in this directory cannot be trusted; empty if they can.
std::string WhyUnsafe(const struct stat& info) {
  if (!S_ISDIR(info.st_mode)) return "it is not a directory";
  if (info.st_uid != geteuid()) return "it belongs to another user";
  if ((info.st_mode & kOthersWrite) != 0) return "other users may write to it (chmod go-w it)";
  return "";
}

// A directory, made if `create`. It is checked through the descriptor that is used from then on, so
// it cannot be exchanged in between. Not ok with errno set if there is none; with `why` if it is
// unsafe.
Fd OpenDirectory(int parent, const std::string& name, bool create, std::string* why = nullptr) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Fd fd(openat(parent, name.c_str(), kFlags));
  if (!fd.ok() && errno == ENOENT && create) {
    if (mkdirat(parent, name.c_str(), 0700) != 0 && errno != EEXIST) return Fd();
    fd = Fd(openat(parent, name.c_str(), kFlags));
  }
  struct stat info{};
  if (!fd.ok() || fstat(fd.get(), &info) != 0) return Fd();
  const std::string unsafe = WhyUnsafe(info);
  if (unsafe.empty()) return fd;
  if (why != nullptr) *why = unsafe;
  errno = EPERM;
  return Fd();
}

void MakeParents(const fs::path& directory) {
  const fs::path parent = directory.parent_path();
  fs::path made;
  for (const fs::path& part : parent) {
    made /= part;
    mkdir(made.c_str(), 0700);  // a failure shows when the directory itself is opened
  }
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

Cache::Cache(fs::path directory) : Cache() {
  // With a slash at its end a path would follow a symbolic link.
  while (!directory.empty() && !directory.has_filename() && directory != directory.root_path()) {
    directory = directory.parent_path();
  }
  state_->path = std::move(directory);
  MakeParents(state_->path);
  std::string why;
  state_->directory = OpenDirectory(AT_FDCWD, state_->path.string(), true, &why);
  if (state_->directory.ok()) return;
  const int error = errno;
  struct stat info{};
  if (lstat(state_->path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    why = "it is a symbolic link (name its target instead)";
  } else if (why.empty()) {
    why = StrCat("it cannot be opened as a directory (", std::strerror(error), ")");
  }
  Warn(StrCat("executables are not cached in ", state_->path.string(), ": ", why,
              ". Set TORCH_NEURONX_NEFF_CACHE_DIR to a directory of your own"));
}

Cache::~Cache() = default;

Cache& Cache::Default() {
  static Cache* const cache = [] {
    auto made =
        env::GetBool(env::Id::kBoolNeffDisableCache)
            ? std::make_unique<Cache>()
            : std::make_unique<Cache>(fs::path(env::GetString(env::Id::kStringNeffCacheDir)));
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
    return ReadChecked(fd, key, fingerprint);
  } catch (const Error&) {
    runtime::GetCompilationMetrics().disk_rejected.fetch_add(1, std::memory_order_relaxed);
    unlinkat(level.get(), name.c_str(), 0);
    return std::nullopt;
  }
}

void Cache::Store(const Hash128& key, Neff neff) {
  if (!enabled()) return;
  const std::string hex = key.Hex();
  const std::string name = hex + ".neff";
  const auto fail = [&](const char* what) {
    const std::string reason = std::strerror(errno);
    WarnOnce("neff-store", StrCat("cannot ", what, " ", name, " in ", state_->path.string(), ": ",
                                  reason, "; executables are compiled again in the next process"));
  };
  const Fd level = state_->OpenLevel(hex, true);
  if (!level.ok()) return fail("make the directory of");
  neff.key = key;
  const std::string temporary = state_->TemporaryName(hex);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const Fd fd(openat(level.get(), temporary.c_str(), kFlags, 0600));
  if (!fd.ok()) return fail("create");
  // The bytes must be on disk before the name is, else a crash could leave an empty file (found
  // out, but only by its checksum). The name itself may be lost: the executable is then compiled
  // again.
  if (!WriteAll(fd.get(), Serialize(neff)) || fdatasync(fd.get()) != 0) {
    fail("write");
    unlinkat(level.get(), temporary.c_str(), 0);
    return;
  }
  if (renameat(level.get(), temporary.c_str(), level.get(), name.c_str()) != 0) {
    fail("publish");
    unlinkat(level.get(), temporary.c_str(), 0);
    return;
  }
  runtime::GetCompilationMetrics().disk_writes.fetch_add(1, std::memory_order_relaxed);
}

std::unique_ptr<Cache::KeyLock> Cache::Lock(const Hash128& key) {
  if (!enabled()) return nullptr;
  Fd locks = OpenDirectory(state_->directory.get(), "locks", true);
  if (!locks.ok()) return nullptr;
  const std::string name = key.Hex() + ".lock";
  for (;;) {
    Fd file(openat(locks.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.ok()) return nullptr;
    while (flock(file.get(), LOCK_EX) != 0) {
      if (errno != EINTR) return nullptr;
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
