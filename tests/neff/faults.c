// Preloaded into a process: makes the n-th system call of the cache's code fail, be cut short, or
// be the last thing that the process does. Only the thread that armed it is affected. And a clock
// that is wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum action { kCount, kFail, kKillBefore, kKillAfter, kCutShort };

static __thread int armed, calls, target, action, error_number;
static time_t clock_offset;

void fault_arm(int at, int what, int error) {
  calls = 0;
  target = at;
  action = what;
  error_number = error;
  armed = 1;
}

int fault_disarm(void) {
  armed = 0;
  return calls;
}

void fault_clock(long seconds) { clock_offset = seconds; }

static void die(void) {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// Whether this is the call that fails.
static int before(void) {
  if (!armed || calls++ != target) return 0;
  if (action == kKillBefore) die();
  if (action != kFail) return 0;
  errno = error_number;
  return 1;
}

static void after(void) {
  if (armed && calls - 1 == target && action == kKillAfter) die();
}

#define WRAP(type, name, parameters, arguments)                    \
  type name parameters {                                           \
    static type(*real) parameters;                                 \
    if (!real) real = (type(*) parameters)dlsym(RTLD_NEXT, #name); \
    if (before()) return (type)-1;                                 \
    type result = real arguments;                                  \
    after();                                                       \
    return result;                                                 \
  }

WRAP(int, fdatasync, (int fd), (fd))
WRAP(int, flock, (int fd, int operation), (fd, operation))
WRAP(int, futimens, (int fd, const struct timespec times[2]), (fd, times))
WRAP(int, mkdirat, (int fd, const char* path, mode_t mode), (fd, path, mode))
WRAP(int, unlinkat, (int fd, const char* path, int flags), (fd, path, flags))
WRAP(int, renameat, (int from, const char* old, int to, const char* new), (from, old, to, new))
WRAP(ssize_t, read, (int fd, void* data, size_t size), (fd, data, size))

int openat(int directory, const char* path, int flags, ...) {
  static int (*real)(int, const char*, int, ...);
  if (!real) real = (int (*)(int, const char*, int, ...))dlsym(RTLD_NEXT, "openat");
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  if (before()) return -1;
  const int result = real(directory, path, flags, mode);
  after();
  return result;
}

ssize_t write(int fd, const void* data, size_t size) {
  static ssize_t (*real)(int, const void*, size_t);
  if (!real) real = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  if (before()) return -1;
  const int here = armed && calls - 1 == target;
  // A process that dies within a write leaves a part of it.
  if (here && (action == kCutShort || action == kKillAfter)) size = size / 2 + 1;
  const ssize_t result = real(fd, data, size);
  after();
  return result;
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  const int result = real(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += clock_offset;
  return result;
}
