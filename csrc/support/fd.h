// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace neuron {

class Fd {
 public:
  Fd() = default;
  // Takes what open() returned: negative after a failure.
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

}  // namespace neuron
