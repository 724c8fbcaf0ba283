// Memory that processes of one host share, and the way a process sleeps until another changes it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

#include "support/fd.h"

namespace neuron::distributed {

// An anonymous file (memfd): the system frees it with the last process that maps it, however that
// dies. Pages take memory once they are written.
class SharedFile {
 public:
  // Makes it, filled with zeros. Throws kInternal with the system's reason.
  explicit SharedFile(size_t bytes);
  // Opens what another process's handle() names, while that process lives.
  SharedFile(size_t bytes, const std::string& handle);
  ~SharedFile();
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;

  char* data() const { return base_; }
  // Names the memory for other processes of this host and user.
  const std::string& handle() const { return handle_; }

 private:
  void Map(bool create);

  const size_t bytes_;
  Fd file_;
  std::string handle_;
  char* base_ = nullptr;
};

// How often a sleeping rank looks whether its peers still live.
constexpr auto kPeerCheck = std::chrono::milliseconds(100);

// Sleeps while `word` holds `seen`, at most `limit`; may return early.
void FutexWait(std::atomic<uint32_t>& word, uint32_t seen,
               std::chrono::steady_clock::duration limit);
void FutexWakeAll(std::atomic<uint32_t>& word);

}  // namespace neuron::distributed
