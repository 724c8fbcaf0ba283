#include "runtime/allocator.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "runtime/device.h"
#include "runtime/stream_registry.h"
#include "support/error.h"

namespace neuron::runtime {
namespace {

// As c10's CUDA allocator, whose behaviour users know: small requests share 2 MiB segments,
// middling ones 20 MiB segments, large ones get their own.
constexpr int64_t kRound = 512;
constexpr int64_t kSmallLimit = 1 << 20;
constexpr int64_t kSmallSegment = 2 << 20;
constexpr int64_t kMiddleLimit = 10 << 20;
constexpr int64_t kMiddleSegment = 20 << 20;
constexpr int64_t kLargeRound = 2 << 20;

struct Block {
  platform::DeviceAddress address = 0;
  int64_t size = 0;
  int64_t requested = 0;
  Stream* stream = nullptr;
  bool small = false;
  bool allocated = false;
  int events = 0;             // other streams that have not passed the point where it was freed
  Block* previous = nullptr;  // neighbours in the segment
  Block* next = nullptr;
  std::set<Stream*> other_streams;
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->address < b->address;
  }
};
using FreeList = std::set<Block*, BySize>;

void Increase(Stat& stat, int64_t amount) {
  stat.current += amount;
  stat.peak = std::max(stat.peak, stat.current);
  stat.allocated += amount;
}

void Decrease(Stat& stat, int64_t amount) {
  stat.current -= amount;
  stat.freed += amount;
}

class DeviceAllocator {
 public:
  explicit DeviceAllocator(int device) : device_(device) {}

  platform::DeviceAddress Allocate(size_t bytes, Stream& stream) {
    const int64_t requested = static_cast<int64_t>(bytes);
    const int64_t size = (requested + kRound - 1) / kRound * kRound;
    std::unique_lock lock(mutex_);
    ++stats_.allocation_requests;
    if (!pending_.empty()) CollectEvents(false);
    Block* block = TakeFree(size, stream);
    if (block == nullptr) block = NewSegment(size, stream, lock);
    Split(block, size);
    block->allocated = true;
    block->requested = requested;
    Increase(stats_.allocation, 1);
    Increase(stats_.allocated_bytes, block->size);
    Increase(stats_.active, 1);
    Increase(stats_.active_bytes, block->size);
    Increase(stats_.requested_bytes, requested);
    blocks_[block->address] = block;
    return block->address;
  }

  bool Free(platform::DeviceAddress address) {
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(address);
    if (it == blocks_.end()) return false;
    Block* block = it->second;
    blocks_.erase(it);
    block->allocated = false;
    ++stats_.num_tensor_frees;
    Decrease(stats_.allocation, 1);
    Decrease(stats_.allocated_bytes, block->size);
    Decrease(stats_.requested_bytes, block->requested);
    if (block->other_streams.empty()) {
      Release(block);
      return true;
    }
    for (Stream* stream : block->other_streams) {
      auto event = GetDevice(device_).CreateEvent(false);
      stream->queue().Record(*event);
      pending_.emplace_back(std::move(event), block);
      ++block->events;
    }
    block->other_streams.clear();
    CollectEvents(false);
    return true;
  }

  bool RecordStream(platform::DeviceAddress address, Stream& stream) {
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(address);
    if (it == blocks_.end()) return false;
    if (&stream != it->second->stream) it->second->other_streams.insert(&stream);
    return true;
  }

  int64_t BlockSize(platform::DeviceAddress address) {
    std::lock_guard lock(mutex_);
    const auto it = blocks_.find(address);
    return it == blocks_.end() ? 0 : it->second->size;
  }

  void EmptyCache() {
    std::unique_lock lock(mutex_);
    ReleaseSegments(lock);
  }

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }

  void ResetPeaks() {
    std::lock_guard lock(mutex_);
    ForEachStat([](Stat& stat) { stat.peak = stat.current; });
  }

  void ResetTotals() {
    std::lock_guard lock(mutex_);
    ForEachStat([](Stat& stat) { stat.allocated = stat.freed = 0; });
    stats_.num_alloc_retries = stats_.num_ooms = stats_.num_device_alloc = stats_.num_device_free =
        0;
    stats_.allocation_requests = stats_.num_tensor_frees = 0;
  }

  std::vector<SegmentSnapshot> Snapshot() {
    std::lock_guard lock(mutex_);
    std::vector<SegmentSnapshot> out;
    for (const auto& [address, segment] : segments_) {
      SegmentSnapshot snapshot{
          address, segment.size, segment.first->stream->id(), !segment.first->small, {}};
      for (const Block* block = segment.first; block != nullptr; block = block->next) {
        snapshot.blocks.push_back({block->address, block->size,
                                   block->allocated ? block->requested : 0, block->allocated,
                                   block->allocated || block->events > 0});
      }
      out.push_back(std::move(snapshot));
    }
    return out;
  }

  void SetFraction(double fraction) {
    std::lock_guard lock(mutex_);
    fraction_ = fraction;
  }
  double fraction() {
    std::lock_guard lock(mutex_);
    return fraction_;
  }

 private:
  struct Segment {
    int64_t size = 0;
    Block* first = nullptr;
  };

  template <typename F>
  void ForEachStat(const F& f) {
    for (Stat* stat : {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
                       &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
                       &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
      f(*stat);
    }
  }

  FreeList& Pool(Stream* stream, bool small) { return free_[{stream, small}]; }

  Block* TakeFree(int64_t size, Stream& stream) {
    const bool small = size <= kSmallLimit;
    FreeList& pool = Pool(&stream, small);
    Block key;
    key.size = size;
    const auto it = pool.lower_bound(&key);
    if (it == pool.end()) return nullptr;
    Block* block = *it;
    // A large block is not cut for much less: that would only fragment it.
    if (!small && size > kMiddleLimit && block->size >= size + kMiddleSegment) return nullptr;
    pool.erase(it);
    if (IsSplit(block)) {
      Decrease(stats_.inactive_split, 1);
      Decrease(stats_.inactive_split_bytes, block->size);
    }
    return block;
  }

  static bool IsSplit(const Block* block) {
    return block->previous != nullptr || block->next != nullptr;
  }

  int64_t Limit() const {
    return static_cast<int64_t>(static_cast<double>(GetDevice(device_).memory().total) * fraction_);
  }

  Block* NewSegment(int64_t size, Stream& stream, std::unique_lock<std::mutex>& lock) {
    const bool small = size <= kSmallLimit;
    const int64_t segment = small ? kSmallSegment
                            : size < kMiddleLimit
                                ? kMiddleSegment
                                : (size + kLargeRound - 1) / kLargeRound * kLargeRound;
    platform::DeviceAddress address = TryReserve(segment);
    if (address == 0) {
      ++stats_.num_alloc_retries;
      ReleaseSegments(lock);
      if (Block* block = TakeFree(size, stream)) return block;
      address = TryReserve(segment);
    }
    if (address == 0) {
      ++stats_.num_ooms;
      NEURON_THROW(kOutOfMemory, OutOfMemoryText(size));
    }
    ++stats_.num_device_alloc;
    Increase(stats_.segment, 1);
    Increase(stats_.reserved_bytes, segment);
    Block* block = NewBlock();
    block->address = address;
    block->size = segment;
    block->stream = &stream;
    block->small = small;
    segments_[address] = {segment, block};
    return block;
  }

  platform::DeviceAddress TryReserve(int64_t bytes) {
    if (stats_.reserved_bytes.current + bytes > Limit()) return 0;
    try {
      return GetDevice(device_).Allocate(static_cast<size_t>(bytes));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOutOfMemory) throw;
      return 0;
    }
  }

  std::string OutOfMemoryText(int64_t size) const {
    constexpr double kMiB = 1 << 20;
    std::vector<const Block*> largest;
    for (const auto& [address, block] : blocks_) largest.push_back(block);
    const size_t shown = std::min<size_t>(5, largest.size());
    std::partial_sort(largest.begin(), largest.begin() + static_cast<int64_t>(shown), largest.end(),
                      [](const Block* a, const Block* b) { return a->size > b->size; });
    std::string text = StrCat(
        "neuron:", device_, " is out of memory. Tried to allocate ",
        static_cast<double>(size) / kMiB, " MiB. The core has ",
        static_cast<double>(GetDevice(device_).memory().total) / kMiB,
        " MiB of HBM, this process may use ", static_cast<double>(Limit()) / kMiB, " MiB; ",
        static_cast<double>(stats_.allocated_bytes.current) / kMiB,
        " MiB are allocated by tensors and ",
        static_cast<double>(stats_.reserved_bytes.current - stats_.allocated_bytes.current) / kMiB,
        " MiB are reserved but unallocated.");
    if (shown > 0) text += " Largest live blocks:";
    for (size_t i = 0; i < shown; ++i)
      text += StrCat(i ? "," : "", " ", static_cast<double>(largest[i]->size) / kMiB, " MiB");
    return text;
  }

  void Split(Block* block, int64_t size) {
    const int64_t rest = block->size - size;
    if (block->small ? rest < kRound : rest <= kSmallLimit) return;
    Block* tail = NewBlock();
    tail->address = block->address + static_cast<uint64_t>(size);
    tail->size = rest;
    tail->stream = block->stream;
    tail->small = block->small;
    tail->previous = block;
    tail->next = block->next;
    if (block->next != nullptr) block->next->previous = tail;
    block->next = tail;
    block->size = size;
    Pool(tail->stream, tail->small).insert(tail);
    Increase(stats_.inactive_split, 1);
    Increase(stats_.inactive_split_bytes, tail->size);
  }

  static bool IsFree(const Block* block) {
    return block != nullptr && !block->allocated && block->events == 0;
  }

  // Back into the pool, merged with free neighbours.
  void Release(Block* block) {
    Decrease(stats_.active, 1);
    Decrease(stats_.active_bytes, block->size);
    if (IsFree(block->next)) Absorb(block, block->next);
    if (IsFree(block->previous)) {
      Block* previous = block->previous;
      RemoveFree(previous);
      Absorb(previous, block, false);
      block = previous;
    }
    Pool(block->stream, block->small).insert(block);
    if (IsSplit(block)) {
      Increase(stats_.inactive_split, 1);
      Increase(stats_.inactive_split_bytes, block->size);
    }
  }

  void RemoveFree(Block* block) {
    Pool(block->stream, block->small).erase(block);
    if (IsSplit(block)) {
      Decrease(stats_.inactive_split, 1);
      Decrease(stats_.inactive_split_bytes, block->size);
    }
  }

  // `right` follows `left` and becomes part of it.
  void Absorb(Block* left, Block* right, bool right_is_pooled = true) {
    if (right_is_pooled) RemoveFree(right);
    left->size += right->size;
    left->next = right->next;
    if (right->next != nullptr) right->next->previous = left;
    DeleteBlock(right);
  }

  void CollectEvents(bool wait) {
    std::erase_if(pending_, [&](auto& entry) {
      if (wait) entry.first->Wait();
      if (!entry.first->Query()) return false;
      if (--entry.second->events == 0) Release(entry.second);
      return true;
    });
  }

  // Gives whole free segments back. Work that was queued before the free may still use them: wait
  // for it.
  void ReleaseSegments(std::unique_lock<std::mutex>& lock) {
    std::vector<std::unique_ptr<platform::Event>> events;
    for (Stream* stream : StartedStreams(device_)) {
      events.push_back(GetDevice(device_).CreateEvent(false));
      stream->queue().Record(*events.back());
    }
    lock.unlock();
    for (const auto& event : events) event->Wait();
    lock.lock();
    CollectEvents(true);
    for (auto& [key, pool] : free_) {
      std::erase_if(pool, [&](Block* block) {
        if (IsSplit(block)) return false;
        GetDevice(device_).Free(block->address);
        ++stats_.num_device_free;
        Decrease(stats_.segment, 1);
        Decrease(stats_.reserved_bytes, block->size);
        segments_.erase(block->address);
        DeleteBlock(block);
        return true;
      });
    }
  }

  Block* NewBlock() {
    auto block = std::make_unique<Block>();
    Block* raw = block.get();
    owned_.emplace(raw, std::move(block));
    return raw;
  }
  void DeleteBlock(Block* block) { owned_.erase(block); }

  const int device_;
  std::mutex mutex_;
  AllocatorStats stats_;
  double fraction_ = 1.0;
  std::map<std::pair<Stream*, bool>, FreeList> free_;
  std::unordered_map<platform::DeviceAddress, Block*> blocks_;  // allocated
  std::map<platform::DeviceAddress, Segment> segments_;
  std::vector<std::pair<std::unique_ptr<platform::Event>, Block*>> pending_;
  std::unordered_map<Block*, std::unique_ptr<Block>> owned_;
};

// Never destroyed: tensors may be freed after static destruction.
DeviceAllocator& Of(int device) {
  static auto* const allocators = [] {
    auto* all = new std::vector<std::unique_ptr<DeviceAllocator>>();
    for (int i = 0; i < DeviceCount(); ++i) all->push_back(std::make_unique<DeviceAllocator>(i));
    return all;
  }();
  if (device < 0 || device >= static_cast<int>(allocators->size())) {
    NEURON_THROW(kOutOfRange, "device index ", device,
                 " is out of range: this process has NeuronCores 0 to ", allocators->size() - 1);
  }
  return *(*allocators)[static_cast<size_t>(device)];
}

}  // namespace

platform::DeviceAddress Allocate(int device, size_t bytes, Stream& stream) {
  Initialize();
  return Of(device).Allocate(bytes, stream);
}

void Free(platform::DeviceAddress address) {
  for (int device = 0; device < DeviceCount(); ++device) {
    if (Of(device).Free(address)) return;
  }
  NEURON_THROW(kInvalidArgument, "free of address ", address, ", which is not allocated");
}

void RecordStream(platform::DeviceAddress address, Stream& stream) {
  Of(stream.device()).RecordStream(address, stream);
}

int64_t BlockSize(platform::DeviceAddress address, int* device) {
  for (int i = 0; i < DeviceCount(); ++i) {
    if (const int64_t size = Of(i).BlockSize(address)) {
      if (device != nullptr) *device = i;
      return size;
    }
  }
  return 0;
}

void EmptyCache(int device) { Of(device).EmptyCache(); }
AllocatorStats GetAllocatorStats(int device) { return Of(device).stats(); }
void ResetPeakStats(int device) { Of(device).ResetPeaks(); }
void ResetAccumulatedStats(int device) { Of(device).ResetTotals(); }
std::vector<SegmentSnapshot> Snapshot(int device) { return Of(device).Snapshot(); }

void SetMemoryFraction(int device, double fraction) {
  if (!(fraction > 0) || fraction > 1) {
    NEURON_THROW(kInvalidArgument, "memory fraction ", fraction,
                 ": expected more than 0 and at most 1");
  }
  Of(device).SetFraction(fraction);
}

double GetMemoryFraction(int device) { return Of(device).fraction(); }

}  // namespace neuron::runtime
