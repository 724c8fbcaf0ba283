#include "distributed/transfers.h"

#include <algorithm>
#include <utility>

#include "distributed/shared_file.h"
#include "support/error.h"

namespace neuron::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBellBytes = 4096;  // apart from the rings' pages

bool Takes(const Transfer& receive, int source, int tag) {
  return receive.tag == tag && (receive.peer == source || receive.peer == kAnySource);
}

}  // namespace

// What lies before the bytes of a message in a channel.
struct Transfers::Header {
  int64_t bytes;
  int64_t elements;
  uint64_t number;
  int32_t tag;
  int32_t dtype;
};

size_t Transfers::Bytes(int size) {
  const auto n = static_cast<size_t>(size);
  return n * kBellBytes + n * n * sizeof(Channel::State);
}

Transfers::Transfers(Peers& peers, char* memory, std::function<void(const std::string&)> on_failure)
    : peers_(peers),
      memory_(memory),
      on_failure_(std::move(on_failure)),
      sends_(static_cast<size_t>(peers.size())),
      sources_(static_cast<size_t>(peers.size())) {}

Transfers::~Transfers() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  if (!worker_.joinable()) return;
  BellOf(peers_.rank()).Ring();
  worker_.join();
}

Channel Transfers::To(int peer) const {
  const auto n = static_cast<size_t>(peers_.size());
  char* rings = memory_ + n * kBellBytes;
  const size_t index = static_cast<size_t>(peers_.rank()) * n + static_cast<size_t>(peer);
  return Channel(reinterpret_cast<Channel::State*>(rings)[index]);
}

Channel Transfers::From(int peer) const {
  const auto n = static_cast<size_t>(peers_.size());
  char* rings = memory_ + n * kBellBytes;
  const size_t index = static_cast<size_t>(peer) * n + static_cast<size_t>(peers_.rank());
  return Channel(reinterpret_cast<Channel::State*>(rings)[index]);
}

Bell Transfers::BellOf(int rank) const {
  return Bell(*reinterpret_cast<Bell::State*>(memory_ + static_cast<size_t>(rank) * kBellBytes));
}

void Transfers::Post(const Pointer& transfer, bool ready) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) {
    transfer->outcome->Finish(BackendError(StrCat(transfer->text, " is not possible: ", broken_)));
    return;
  }
  if (transfer->sends) {
    sends_[static_cast<size_t>(transfer->peer)].push_back(transfer);
  } else {
    receives_.push_back(transfer);
  }
  if (ready) Begin(*transfer);
  while (ready && Progress()) {
  }
  if (transfer->outcome->Done()) return;
  if (!worker_.joinable()) worker_ = std::thread([this] { Work(); });
  BellOf(peers_.rank()).Ring();
}

void Transfers::SetReady(const Pointer& transfer) {
  {
    const std::lock_guard lock(mutex_);
    Begin(*transfer);
  }
  BellOf(peers_.rank()).Ring();
}

void Transfers::Break(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  FailLocked(reason);
}

void Transfers::Begin(Transfer& transfer) {
  transfer.ready = true;
  transfer.deadline = Clock::now() + transfer.timeout;
}

bool Transfers::Progress() {
  bool progressed = false;
  for (int peer = 0; peer < peers_.size() && broken_.empty(); ++peer) {
    progressed |= ProgressSends(peer);
    progressed |= ProgressReceives(peer);
  }
  return broken_.empty() && (TakeKept() || progressed);
}

bool Transfers::ProgressSends(int peer) {
  auto& queue = sends_[static_cast<size_t>(peer)];
  Channel channel = To(peer);
  bool progressed = false;
  while (!queue.empty() && queue.front()->ready) {
    const Pointer send = queue.front();
    if (!send->started) {
      if (channel.Writable() < sizeof(Header)) break;
      const Header header{send->bytes, send->tensor.numel(), send->number, send->tag,
                          static_cast<int32_t>(send->tensor.scalar_type())};
      channel.Write(reinterpret_cast<const char*>(&header), sizeof header);
      send->started = progressed = true;
    }
    const size_t n =
        channel.Write(send->data + send->moved, static_cast<size_t>(send->bytes - send->moved));
    send->moved += static_cast<int64_t>(n);
    progressed |= n > 0;
    if (send->moved < send->bytes) break;
    queue.pop_front();
    Finish(send, kAnySource);
  }
  if (progressed) BellOf(peer).Ring();
  return progressed;
}

bool Transfers::ProgressReceives(int source) {
  Source& from = sources_[static_cast<size_t>(source)];
  Channel channel = From(source);
  bool took = false;
  while (broken_.empty()) {
    if (from.coming == nullptr) {
      if (channel.Readable() < sizeof(Header)) break;
      Header header;
      channel.Read(reinterpret_cast<char*>(&header), sizeof header);
      from.coming = std::make_unique<Message>();
      Message& message = *from.coming;
      message.bytes = header.bytes;
      message.elements = header.elements;
      message.number = header.number;
      message.tag = header.tag;
      message.dtype = header.dtype;
      took = true;
    }
    Message& message = *from.coming;
    if (message.receive == nullptr && message.kept.empty() && !Place(source, from)) break;
    if (from.coming == nullptr) continue;  // an empty one, placed at once
    char* data = message.receive != nullptr ? message.receive->data : message.kept.data();
    const size_t n =
        channel.Read(data + message.moved, static_cast<size_t>(message.bytes - message.moved));
    message.moved += static_cast<int64_t>(n);
    took |= n > 0;
    if (!message.complete()) break;
    if (message.receive != nullptr) {
      Finish(message.receive, source);
      from.coming.reset();
    } else {
      from.kept.push_back(std::move(from.coming));
    }
  }
  if (took) BellOf(source).Ring();
  return took;
}

// Where the coming message goes. False: nowhere yet, it stays in the channel.
bool Transfers::Place(int source, Source& from) {
  Message& message = *from.coming;
  // A message that waits for its receive must not be overtaken by one of its own tag.
  const bool behind = std::any_of(from.kept.begin(), from.kept.end(),
                                  [&](const auto& kept) { return kept->tag == message.tag; });
  const auto it = std::find_if(receives_.begin(), receives_.end(), [&](const Pointer& receive) {
    return Takes(*receive, source, message.tag);
  });
  if (!behind && it != receives_.end() && (*it)->ready) {
    message.receive = *it;
    if (!Accept(message.receive, source, message)) return false;
    receives_.erase(it);
    return true;
  }
  // Does a receive wait for what lies behind this message?
  const bool others = std::any_of(receives_.begin(), receives_.end(), [&](const Pointer& receive) {
    return receive->ready && receive->tag != message.tag &&
           (receive->peer == source || receive->peer == kAnySource);
  });
  if (!others && !behind) return false;
  message.kept.resize(static_cast<size_t>(message.bytes));
  if (message.bytes == 0) from.kept.push_back(std::move(from.coming));
  return true;
}

// Gives kept messages to receives that have come meanwhile.
bool Transfers::TakeKept() {
  bool took = false;
  for (size_t i = 0; i < receives_.size();) {
    const Pointer receive = receives_[i];
    const auto same = [&](const Pointer& earlier) {
      return earlier->tag == receive->tag &&
             (earlier->peer == receive->peer || earlier->peer == kAnySource ||
              receive->peer == kAnySource);
    };
    const auto here = receives_.begin() + static_cast<std::ptrdiff_t>(i);
    bool found = false;
    for (int r = 0; r < peers_.size() && !found && receive->ready; ++r) {
      auto& kept = sources_[static_cast<size_t>(r)].kept;
      const auto it = std::find_if(kept.begin(), kept.end(), [&](const auto& message) {
        return Takes(*receive, r, message->tag);
      });
      // An earlier receive of the same messages that is not ready goes first.
      if (it == kept.end() || std::any_of(receives_.begin(), here, same)) continue;
      if (!Accept(receive, r, **it)) return true;
      std::copy((*it)->kept.begin(), (*it)->kept.end(), receive->data);
      kept.erase(it);
      receives_.erase(here);
      Finish(receive, r);
      found = took = true;
    }
    if (!found) ++i;
  }
  return took;
}

bool Transfers::Accept(const Pointer& receive, int source, const Message& message) {
  const auto dtype = static_cast<c10::ScalarType>(message.dtype);
  if (dtype == receive->tensor.scalar_type() && message.elements == receive->tensor.numel())
    return true;
  const int own = peers_.GroupRank(peers_.rank());
  FailLocked(StrCat("ranks do not agree: rank ", peers_.GroupRank(source), " is in send number ",
                    message.number, " of ", message.elements, " elements of ", c10::toString(dtype),
                    " to rank ", own, ", tag ", message.tag, "; rank ", own, " is in ",
                    receive->text));
  return false;
}

void Transfers::Finish(const Pointer& transfer, int source) {
  transfer->tensor = at::Tensor();
  transfer->outcome->Finish(nullptr, source == kAnySource ? source : peers_.GroupRank(source));
}

// Throws nothing: what it finds becomes the failure of the group.
void Transfers::CheckPending() {
  const auto now = Clock::now();
  std::string reason;
  const auto check = [&](const Pointer& transfer) {
    if (reason.empty() && transfer->ready) reason = TroubleOf(*transfer, now);
  };
  for (const auto& queue : sends_) std::for_each(queue.begin(), queue.end(), check);
  std::for_each(receives_.begin(), receives_.end(), check);
  for (const Source& source : sources_)
    if (source.coming != nullptr && source.coming->receive != nullptr)
      check(source.coming->receive);
  // A peer's last words, written before it ended, still count.
  if (!reason.empty() && !Progress()) FailLocked(reason);
}

std::string Transfers::TroubleOf(const Transfer& transfer, Clock::time_point now) const {
  const std::string who = StrCat("rank ", peers_.GroupRank(peers_.rank()));
  if (const auto own = peers_.Trouble(peers_.rank()))
    return StrCat(who, " gives up ", transfer.text, ": ", *own);
  if (transfer.peer != kAnySource) {
    if (const auto trouble = peers_.Trouble(transfer.peer))
      return StrCat(who, " gives up ", transfer.text, ": ", *trouble);
  } else {
    std::string all;
    for (int r = 0; r < peers_.size(); ++r) {
      const auto trouble = r == peers_.rank() ? std::nullopt : peers_.Trouble(r);
      if (!trouble && r != peers_.rank()) all.clear();
      if (!trouble && r != peers_.rank()) break;
      if (trouble) all += StrCat(all.empty() ? "" : "; ", *trouble);
    }
    if (!all.empty()) return StrCat(who, " gives up ", transfer.text, ": ", all);
  }
  if (now < transfer.deadline) return "";
  if (transfer.peer == kAnySource)
    return StrCat(who, " timed out in ", transfer.text, ": no rank sent to it");
  return StrCat(who, " timed out in ", transfer.text, ": rank ", peers_.GroupRank(transfer.peer),
                " did not ", transfer.sends ? "receive" : "send");
}

void Transfers::FailLocked(const std::string& reason) {
  if (!broken_.empty()) return;
  broken_ = reason;
  const std::exception_ptr error = BackendError(reason);
  const auto end = [&](const Pointer& transfer) { transfer->outcome->Finish(error); };
  for (auto& queue : sends_) {
    std::for_each(queue.begin(), queue.end(), end);
    queue.clear();
  }
  std::for_each(receives_.begin(), receives_.end(), end);
  receives_.clear();
  for (Source& source : sources_) {
    if (source.coming != nullptr && source.coming->receive != nullptr) end(source.coming->receive);
    source.coming.reset();
  }
  peers_.Fail(reason);
  on_failure_(reason);
  for (int r = 0; r < peers_.size(); ++r) BellOf(r).Ring();
}

void Transfers::Work() {
  Bell bell = BellOf(peers_.rank());
  std::unique_lock lock(mutex_);
  auto checked = Clock::now();
  while (!stop_) {
    const uint32_t seen = bell.Count();
    const bool progressed = Progress();
    const auto pending = [&] {
      return !receives_.empty() ||
             std::any_of(sends_.begin(), sends_.end(), [](const auto& q) { return !q.empty(); }) ||
             std::any_of(sources_.begin(), sources_.end(), [](const Source& source) {
               return source.coming != nullptr && source.coming->receive != nullptr;
             });
    };
    if (progressed) continue;
    const bool waits = pending();
    if (waits && Clock::now() - checked >= kPeerCheck) {
      CheckPending();
      checked = Clock::now();
    }
    lock.unlock();
    bell.Sleep(seen, waits);
    lock.lock();
  }
}

}  // namespace neuron::distributed
