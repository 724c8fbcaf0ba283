#include "neff/directory.h"

#include <dirent.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "support/error.h"

namespace neuron::neff {
namespace {

namespace fs = std::filesystem;

// Why executables in this directory cannot be trusted; empty if they can.
std::string WhyUnsafe(const struct stat& info) {
  if (!S_ISDIR(info.st_mode)) return "it is not a directory";
  if (info.st_uid != geteuid()) return "it belongs to another user";
  if ((info.st_mode & kOthersWrite) != 0) return "other users may write to it (chmod go-w it)";
  return "";
}

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

}  // namespace

Fd OpenDirectory(int parent, const std::string& name, bool create, std::string* why) {
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
  fs::path made;
  for (const fs::path& part : directory.parent_path()) {
    made /= part;
    mkdir(made.c_str(), 0700);
  }
}

fs::path WithoutSlashes(fs::path directory) {
  while (!directory.empty() && !directory.has_filename() && directory != directory.root_path()) {
    directory = directory.parent_path();
  }
  return directory;
}

std::string WhyUnsafe(const fs::path& directory) {
  const fs::path path = WithoutSlashes(directory);
  std::string why;
  if (OpenDirectory(AT_FDCWD, path.string(), false, &why).ok() || errno == ENOENT) return "";
  const int error = errno;
  struct stat info{};
  if (lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode)) {
    return "it is a symbolic link (name its target instead)";
  }
  if (!why.empty()) return why;
  return StrCat("it cannot be opened as a directory (", std::strerror(error), ")");
}

std::vector<std::string> NamesIn(const Fd& directory) {
  std::vector<std::string> names;
  // A descriptor of its own: closedir closes it, and its position is not shared.
  const int fd = openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseDirectory> stream(fd < 0 ? nullptr : fdopendir(fd));
  if (stream == nullptr) {
    if (fd >= 0) close(fd);
    return names;
  }
  while (const dirent* entry = readdir(stream.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

}  // namespace neuron::neff
