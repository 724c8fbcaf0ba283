#include "distributed/shared_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>

#include "support/error.h"

namespace neuron::distributed {

static_assert(std::atomic<uint32_t>::is_always_lock_free);

SharedFile::SharedFile(size_t bytes) : bytes_(bytes) {
  file_ = Fd(memfd_create("torch_neuronx_group", MFD_CLOEXEC));
  if (!file_.ok())
    NEURON_THROW(kInternal, "memfd_create for a process group failed: ", std::strerror(errno));
  handle_ = StrCat("/proc/", getpid(), "/fd/", file_.get());
  Map(true);
}

SharedFile::SharedFile(size_t bytes, const std::string& handle) : bytes_(bytes), handle_(handle) {
  file_ = Fd(open(handle.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.ok()) {
    NEURON_THROW(kInternal, "cannot open the group's shared memory ", handle, ": ",
                 std::strerror(errno),
                 ". All ranks of a host must run as one user in one PID namespace");
  }
  Map(false);
}

SharedFile::~SharedFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

void SharedFile::Map(bool create) {
  if (create && ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0)
    NEURON_THROW(kInternal, "cannot size the group's shared memory: ", std::strerror(errno));
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (base == MAP_FAILED)
    NEURON_THROW(kInternal, "cannot map the group's shared memory: ", std::strerror(errno));
  base_ = static_cast<char*>(base);
}

void FutexWait(std::atomic<uint32_t>& word, uint32_t seen,
               std::chrono::steady_clock::duration limit) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count();
  timespec time{};
  time.tv_sec = static_cast<time_t>(ns / 1000000000);
  time.tv_nsec = static_cast<long>(ns % 1000000000);
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace neuron::distributed
