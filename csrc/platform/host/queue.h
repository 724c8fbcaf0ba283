// A queue of the platform `host`: one worker thread that runs tasks in order.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "platform/driver.h"
#include "platform/host/event.h"
#include "platform/host/executable.h"

namespace neuron::host {

// Tasks wait in a ring; when it is full, callers wait. A cheap task given to an idle queue runs in
// the calling thread: waking the worker would take longer. The worker starts at the first task that
// needs it, spins for a short time when it runs out of tasks, then sleeps.
class HostQueue final : public platform::Queue {
 public:
  HostQueue();
  ~HostQueue() override;

  void Launch(std::shared_ptr<const platform::Executable> executable,
              std::span<const platform::DeviceAddress> operands, std::span<const uint64_t> scalars,
              std::shared_ptr<const platform::LaunchContext> context) override;
  void CopyToDevice(platform::DeviceAddress destination, const void* source, size_t bytes,
                    std::shared_ptr<const void> owner) override;
  void CopyFromDevice(void* destination, platform::DeviceAddress source, size_t bytes) override;
  void CopyOnDevice(platform::DeviceAddress destination, platform::DeviceAddress source,
                    size_t bytes) override;
  void Fill(platform::DeviceAddress destination, uint8_t byte, size_t bytes) override;
  void Enqueue(std::function<void()> fn) override;
  void EnqueueShort(std::function<void()> fn) override;
  void Record(platform::Event& event) override;
  void WaitFor(platform::Event& event) override;
  bool Idle() const override;
  void Synchronize() override;

 private:
  static constexpr size_t kInlineWords = 28;  // operands and scalars of nearly every op
  static constexpr uint64_t kSlots = 1024;

  struct Task {
    std::shared_ptr<const HostExecutable> executable;
    std::shared_ptr<const platform::LaunchContext> context;
    size_t operands = 0, scalars = 0;
    std::array<uint64_t, kInlineWords> words;  // operands, then scalars
    std::vector<uint64_t> more_words;          // instead of `words` when they are too few
    std::function<void()> fn;                  // when there is no executable
    const uint64_t* data() const { return more_words.empty() ? words.data() : more_words.data(); }
  };

  void Copy(void* destination, const void* source, size_t bytes,
            std::shared_ptr<const void> owner = nullptr);
  // fill(task) writes the task into its slot; run_now() does it at once instead if the queue is
  // idle.
  template <typename FillTask, typename RunNow>
  void Submit(bool cheap, const FillTask& fill, const RunNow& run_now);
  void Work();
  bool WaitForTask();
  void RunTask(Task& task);
  void Keep(std::exception_ptr error, const platform::LaunchContext* context);
  void KeepFailure(std::shared_ptr<Failure> failure);
  std::shared_ptr<Failure> Kept();
  void WaitUntilDone(uint64_t count);

  std::mutex submit_mutex_;  // one producer at a time
  std::vector<Task> ring_;
  std::atomic<uint64_t> submitted_{0};  // tasks ever put into the ring
  std::atomic<uint64_t> finished_{0};   // tasks of the ring that were run
  std::atomic<bool> sleeping_{false};
  std::atomic<int> waiters_{0};  // threads blocked until finished_ moves
  std::mutex mutex_;             // for sleeping and waiting
  std::condition_variable wake_, done_;
  bool stop_ = false;
  std::thread worker_;

  std::mutex error_mutex_;
  std::shared_ptr<Failure> failure_;  // the first since the last Synchronize
  const bool blocking_;
};

}  // namespace neuron::host
