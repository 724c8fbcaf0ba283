#include "platform/host/queue.h"

#include <sched.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "kernels/thread_pool.h"
#include "support/env.h"
#include "support/error.h"
#include "support/interrupt.h"

namespace neuron::host {
namespace {

// A task that is expected to take less runs in the caller of an idle queue: handing it over costs
// about as much.
constexpr int64_t kInlineNanoseconds = 4000;
constexpr size_t kInlineCopyBytes = 64 << 10;
constexpr auto kSpin = std::chrono::microseconds(200);
// Copies above this size are split over the pool.
constexpr size_t kParallelCopyBytes = 4 << 20;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spinning workers of many processes on few CPUs would only take time from each other.
bool MaySpin() {
  static const bool may = [] {
    cpu_set_t set;
    const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    const char* local = std::getenv("LOCAL_WORLD_SIZE");
    return cpus > 1 && (local == nullptr || std::atoi(local) <= cpus / 2);
  }();
  return may;
}

}  // namespace

HostQueue::HostQueue() : blocking_(env::GetBool(env::Id::kBoolLaunchBlocking)) {}

HostQueue::~HostQueue() {
  if (!worker_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  worker_.join();
}

template <typename FillTask, typename RunNow>
void HostQueue::Submit(bool cheap, const FillTask& fill, const RunNow& run_now) {
  std::unique_lock submit(submit_mutex_);
  const uint64_t position = submitted_.load(std::memory_order_relaxed);
  // Idle, and nobody else can submit while the lock is held: the order is kept.
  if (cheap && finished_.load(std::memory_order_acquire) == position) {
    run_now();
    return;
  }
  if (ring_.empty()) {
    ring_.resize(kSlots);
    worker_ = std::thread([this] { Work(); });
  }
  if (position - finished_.load(std::memory_order_acquire) >= kSlots)
    WaitUntilDone(position - kSlots + 1);
  fill(ring_[position % kSlots]);
  submitted_.store(position + 1, std::memory_order_seq_cst);
  if (sleeping_.load(std::memory_order_seq_cst)) {
    std::lock_guard lock(mutex_);
    wake_.notify_one();
  }
  if (blocking_) {
    submit.unlock();
    Synchronize();
  }
}

void HostQueue::Launch(std::shared_ptr<const platform::Executable> executable,
                       std::span<const platform::DeviceAddress> operands,
                       std::span<const uint64_t> scalars,
                       std::shared_ptr<const platform::LaunchContext> context) {
  const auto* host = static_cast<const HostExecutable*>(executable.get());
  const bool cheap = host->estimated_ns < kInlineNanoseconds && host->Ready();
  Submit(
      cheap,
      [&](Task& task) {
        task.operands = operands.size();
        task.scalars = scalars.size();
        uint64_t* words = task.words.data();
        if (operands.size() + scalars.size() > kInlineWords) {
          task.more_words.resize(operands.size() + scalars.size());
          words = task.more_words.data();
        }
        std::copy(operands.begin(), operands.end(), words);
        std::copy(scalars.begin(), scalars.end(), words + operands.size());
        task.executable = std::static_pointer_cast<const HostExecutable>(std::move(executable));
        task.context = std::move(context);
      },
      [&] {
        try {
          host->Run(operands.data(), scalars.data());
        } catch (...) {
          Keep(std::current_exception(), context.get());
          if (blocking_) Synchronize();
        }
      });
}

void HostQueue::Copy(void* destination, const void* source, size_t bytes,
                     std::shared_ptr<const void> owner) {
  const auto copy = [=, owner = std::move(owner)] {
    if (bytes < kParallelCopyBytes) {
      std::memcpy(destination, source, bytes);
      return;
    }
    const auto parts = static_cast<int64_t>(bytes / (kParallelCopyBytes / 2));
    kernels::ThreadPool::Get().ParallelFor(parts, [&](int64_t i) {
      const size_t begin = bytes / static_cast<size_t>(parts) * static_cast<size_t>(i);
      const size_t end =
          i + 1 == parts ? bytes : bytes / static_cast<size_t>(parts) * static_cast<size_t>(i + 1);
      std::memcpy(static_cast<char*>(destination) + begin, static_cast<const char*>(source) + begin,
                  end - begin);
    });
  };
  Submit(bytes <= kInlineCopyBytes, [&](Task& task) { task.fn = copy; }, copy);
}

void HostQueue::CopyToDevice(platform::DeviceAddress destination, const void* source, size_t bytes,
                             std::shared_ptr<const void> owner) {
  Copy(reinterpret_cast<void*>(destination), source, bytes, std::move(owner));
}

void HostQueue::CopyFromDevice(void* destination, platform::DeviceAddress source, size_t bytes) {
  Copy(destination, reinterpret_cast<const void*>(source), bytes);
}

void HostQueue::CopyOnDevice(platform::DeviceAddress destination, platform::DeviceAddress source,
                             size_t bytes) {
  Copy(reinterpret_cast<void*>(destination), reinterpret_cast<const void*>(source), bytes);
}

void HostQueue::Fill(platform::DeviceAddress destination, uint8_t byte, size_t bytes) {
  const auto fill = [=] { std::memset(reinterpret_cast<void*>(destination), byte, bytes); };
  Submit(bytes <= kInlineCopyBytes, [&](Task& task) { task.fn = fill; }, fill);
}

void HostQueue::Enqueue(std::function<void()> fn) {
  Submit(false, [&](Task& task) { task.fn = std::move(fn); }, [] {});
}

void HostQueue::EnqueueShort(std::function<void()> fn) {
  Submit(
      true, [&](Task& task) { task.fn = std::move(fn); },
      [&] {
        try {
          fn();
        } catch (...) {
          Keep(std::current_exception(), nullptr);
          if (blocking_) Synchronize();
        }
      });
}

void HostQueue::Record(platform::Event& event) {
  auto& host = static_cast<HostEvent&>(event);
  const uint64_t point = host.NextPoint();
  const auto reach = [this, state = host.state(), point, timing = host.timing()] {
    state->Reach(point, timing, Kept());
  };
  Submit(true, [&](Task& task) { task.fn = reach; }, reach);
}

void HostQueue::WaitFor(platform::Event& event) {
  auto& host = static_cast<HostEvent&>(event);
  if (host.Query()) return KeepFailure(host.state()->WaitFor(host.LastPoint()));
  Submit(
      false,
      [&](Task& task) {
        task.fn = [this, state = host.state(), point = host.LastPoint()] {
          KeepFailure(state->WaitFor(point));
        };
      },
      [] {});
}

bool HostQueue::Idle() const {
  return finished_.load(std::memory_order_acquire) == submitted_.load(std::memory_order_acquire);
}

void HostQueue::Synchronize() {
  WaitUntilDone(submitted_.load(std::memory_order_acquire));
  std::shared_ptr<Failure> failure;
  {
    std::lock_guard lock(error_mutex_);
    failure = std::exchange(failure_, nullptr);
  }
  if (failure != nullptr && !failure->raised.exchange(true)) std::rethrow_exception(failure->error);
}

void HostQueue::WaitUntilDone(uint64_t count) {
  if (finished_.load(std::memory_order_acquire) >= count) return;
  NEURON_CHECK(std::this_thread::get_id() != worker_.get_id(),
               "a task of a queue waits for the queue itself");
  if (MaySpin()) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (std::chrono::steady_clock::now() < end) {
      for (int i = 0; i < 64; ++i) {
        if (finished_.load(std::memory_order_acquire) >= count) return;
        Pause();
      }
    }
  }
  std::unique_lock lock(mutex_);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  const auto done = [&] { return finished_.load(std::memory_order_seq_cst) >= count; };
  try {
    interrupt::Wait(done_, lock, done);
  } catch (...) {
    waiters_.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  waiters_.fetch_sub(1, std::memory_order_relaxed);
}

bool HostQueue::WaitForTask() {
  const uint64_t next = finished_.load(std::memory_order_relaxed);
  const auto available = [&] { return submitted_.load(std::memory_order_seq_cst) != next; };
  if (MaySpin()) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 64; ++i) {
        if (available()) return true;
        Pause();
      }
    } while (std::chrono::steady_clock::now() < end);
  }
  std::unique_lock lock(mutex_);
  sleeping_.store(true, std::memory_order_seq_cst);
  wake_.wait(lock, [&] { return stop_ || available(); });
  sleeping_.store(false, std::memory_order_relaxed);
  return available();
}

void HostQueue::Work() {
  while (WaitForTask()) {
    const uint64_t position = finished_.load(std::memory_order_relaxed);
    RunTask(ring_[position % kSlots]);
    finished_.store(position + 1, std::memory_order_seq_cst);
    if (waiters_.load(std::memory_order_seq_cst) > 0) {
      std::lock_guard lock(mutex_);
      done_.notify_all();
    }
  }
}

void HostQueue::RunTask(Task& task) {
  try {
    if (task.executable != nullptr) {
      task.executable->Run(task.data(), task.data() + task.operands);
    } else {
      task.fn();
    }
  } catch (...) {
    Keep(std::current_exception(), task.context.get());
  }
  task.executable.reset();
  task.context.reset();
  task.more_words.clear();
  task.fn = nullptr;
}

// Keeps the first failure, told as: message, op, arguments, call site.
void HostQueue::Keep(std::exception_ptr error, const platform::LaunchContext* context) {
  if (context != nullptr) {
    ErrorCode code = ErrorCode::kFailedExecution;
    std::string message;
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      code = e.code();
      message = e.what();
    } catch (const std::exception& e) {
      message = e.what();
    } catch (...) {
      message = "an exception of unknown type";
    }
    message += "\n  in " + context->op + "(" + context->arguments + ")";
    if (!context->call_site.empty()) message += "\n  called at " + context->call_site;
    error = std::make_exception_ptr(Error(code, message));
  }
  KeepFailure(std::make_shared<Failure>(std::move(error)));
}

void HostQueue::KeepFailure(std::shared_ptr<Failure> failure) {
  if (failure == nullptr || failure->raised) return;
  std::lock_guard lock(error_mutex_);
  if (failure_ == nullptr || failure_->raised) failure_ = std::move(failure);
}

std::shared_ptr<Failure> HostQueue::Kept() {
  std::lock_guard lock(error_mutex_);
  return failure_;
}

}  // namespace neuron::host
