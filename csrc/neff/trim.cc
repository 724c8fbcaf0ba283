#include "neff/trim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "neff/directory.h"

namespace neuron::neff {
namespace {

constexpr size_t kHexDigits = 32;
// A writer takes its lock right after it made its file; in between the file looks abandoned.
constexpr int64_t kYoungSeconds = 60;

struct File {
  std::string first, second, name;  // DIR/first/second/name
  int64_t bytes = 0;
  int64_t used = 0;  // nanoseconds since the epoch; 0 if unknown
};

int64_t NowNanoseconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::nanoseconds(now).count();
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

bool IsHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsKeyWith(std::string_view name, std::string_view ending) {
  return name.size() >= kHexDigits + ending.size() && IsHex(name.substr(0, kHexDigits)) &&
         name[kHexDigits] == '.' && name.ends_with(ending);
}

bool IsExecutable(std::string_view name) {
  return name.size() == kHexDigits + 5 && IsKeyWith(name, ".neff");
}

// Calls visit(level, first, second) for every DIR/ab/cd.
void ForEachLevel(
    const Fd& directory,
    const std::function<void(const Fd&, const std::string&, const std::string&)>& visit) {
  const auto is_level = [](const std::string& name) { return name.size() == 2 && IsHex(name); };
  for (const std::string& first : NamesIn(directory)) {
    if (!is_level(first)) continue;
    const Fd outer = OpenDirectory(directory.get(), first, false);
    if (!outer.ok()) continue;
    for (const std::string& second : NamesIn(outer)) {
      if (!is_level(second)) continue;
      const Fd level = OpenDirectory(outer.get(), second, false);
      if (level.ok()) visit(level, first, second);
    }
  }
}

// Removes a file that its owner would hold locked if it lived, and that is older than `min_age`
// (or of the future). Returns whether it did.
bool RemoveAbandoned(const Fd& directory, const std::string& name, int64_t min_age, int64_t now) {
  constexpr int kFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  const Fd fd(openat(directory.get(), name.c_str(), kFlags));
  struct stat info{};
  if (!fd.ok() || fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const int64_t age = now - Nanoseconds(info.st_mtim);
  if (std::llabs(age) < min_age || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;
  // The name may belong to a file that was made in between.
  struct stat named{};
  if (fstatat(directory.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      named.st_ino != info.st_ino || named.st_dev != info.st_dev) {
    return false;
  }
  return unlinkat(directory.get(), name.c_str(), 0) == 0;
}

std::vector<File> Survey(const Fd& directory, Trimmed& out, int64_t now) {
  std::vector<File> files;
  ForEachLevel(directory, [&](const Fd& level, const std::string& first,
                              const std::string& second) {
    for (const std::string& name : NamesIn(level)) {
      struct stat info{};
      if (IsKeyWith(name, ".tmp")) {
        out.stale_files += RemoveAbandoned(level, name, kYoungSeconds * 1'000'000'000, now) ? 1 : 0;
      } else if (IsExecutable(name) &&
                 fstatat(level.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                 S_ISREG(info.st_mode)) {
        const int64_t used = Nanoseconds(info.st_atim);
        files.push_back({first, second, name, int64_t{info.st_size}, used > now ? 0 : used});
        out.bytes += info.st_size;
      }
    }
  });
  out.files = static_cast<int64_t>(files.size());
  return files;
}

// As Cache::KeyLock releases it: whoever waits for the file sees that it is gone and starts anew.
void RemoveAbandonedLocks(const Fd& directory, Trimmed& out, int64_t now) {
  const Fd locks = OpenDirectory(directory.get(), "locks", false);
  if (!locks.ok()) return;
  for (const std::string& name : NamesIn(locks)) {
    if (IsKeyWith(name, ".lock")) out.stale_files += RemoveAbandoned(locks, name, 0, now) ? 1 : 0;
  }
}

bool Remove(const Fd& directory, const File& file) {
  const Fd first = OpenDirectory(directory.get(), file.first, false);
  const Fd second = first.ok() ? OpenDirectory(first.get(), file.second, false) : Fd();
  return second.ok() && unlinkat(second.get(), file.name.c_str(), 0) == 0;
}

}  // namespace

Trimmed Trim(const Fd& directory, int64_t max_bytes) {
  Trimmed out;
  const int64_t now = NowNanoseconds();
  RemoveAbandonedLocks(directory, out, now);
  std::vector<File> files = Survey(directory, out, now);
  if (max_bytes < 0 || out.bytes <= max_bytes) return out;
  // With some room, so that not every later file needs a survey.
  const int64_t target = max_bytes - max_bytes / 10;
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (out.bytes <= target) break;
    const bool removed = Remove(directory, file);
    if (!removed && errno != ENOENT) continue;
    out.bytes -= file.bytes;  // another process may have removed it just now
    --out.files;
    if (!removed) continue;
    ++out.evicted_files;
    out.evicted_bytes += file.bytes;
  }
  return out;
}

}  // namespace neuron::neff
