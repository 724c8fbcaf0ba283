// Point-to-point messages between the ranks of a host, all in progress at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "distributed/channel.h"
#include "distributed/outcome.h"
#include "distributed/peers.h"

namespace neuron::distributed {

constexpr int kAnySource = -1;

// One send or receive of this rank.
struct Transfer {
  bool sends = false;
  int peer = kAnySource;  // rank on this host; only a receive may leave it open
  int tag = 0;
  uint64_t number = 0;  // of this rank's sends or receives in the group, from 1
  at::Tensor tensor;    // dense; held until it is done
  std::chrono::milliseconds timeout{};

  char* data = nullptr;
  int64_t bytes = 0;
  std::string text;  // "send number 1 of ... to rank 0, tag 0", for errors
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();

  // Of the engine, under its mutex.
  bool ready = false;  // the stream has come to it: its memory may be read or written
  std::chrono::steady_clock::time_point deadline;
  int64_t moved = 0;  // bytes
  bool started = false;
};

// Sends of one rank to another are in order. A receive takes the first message with its tag from
// its source (or any); what comes before it with another tag is kept in this process. Small
// messages do not wait for their receiver, up to Channel::kRingBytes in all. A message of another
// dtype or size than the receive's, a dead peer or a timeout ends the group.
class Transfers {
 public:
  static size_t Bytes(int size);
  // memory: shared, zeros at first. on_failure: called once with the reason.
  Transfers(Peers& peers, char* memory, std::function<void(const std::string&)> on_failure);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  using Pointer = std::shared_ptr<Transfer>;
  // Takes its place in the order; with `ready` it may begin, and does so in the calling thread.
  void Post(const Pointer& transfer, bool ready);
  void SetReady(const Pointer& transfer);
  // Ends all pending transfers, and those to come.
  void Break(const std::string& reason);

 private:
  struct Header;
  // A message that is being read or that waits for its receive.
  struct Message {
    int64_t bytes = 0, elements = 0, moved = 0;
    int tag = 0;
    int dtype = 0;
    uint64_t number = 0;
    Pointer receive;         // where it goes
    std::vector<char> kept;  // or, without a receive, its bytes
    bool complete() const { return moved == bytes; }
  };
  struct Source {
    std::deque<std::unique_ptr<Message>> kept;  // in order of arrival; the last may be incomplete
    std::unique_ptr<Message> coming;            // its header was read, its place is not known yet
  };

  Channel To(int peer) const;
  Channel From(int peer) const;
  Bell BellOf(int rank) const;
  void Begin(Transfer& transfer);
  bool Progress();
  bool ProgressSends(int peer);
  bool ProgressReceives(int source);
  bool TakeKept();
  bool Place(int source, Source& from);
  bool Accept(const Pointer& receive, int source, const Message& message);
  void Finish(const Pointer& transfer, int source);
  void CheckPending();
  std::string TroubleOf(const Transfer& transfer, std::chrono::steady_clock::time_point now) const;
  void FailLocked(const std::string& reason);
  void Work();

  Peers& peers_;
  char* const memory_;
  const std::function<void(const std::string&)> on_failure_;
  std::mutex mutex_;
  std::vector<std::deque<Pointer>> sends_;  // by peer
  std::deque<Pointer> receives_;            // in order of issue; those without a message
  std::vector<Source> sources_;
  std::string broken_;
  bool stop_ = false;
  std::thread worker_;
};

}  // namespace neuron::distributed
