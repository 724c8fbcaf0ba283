#include "kernels/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "support/env.h"

namespace neuron::kernels {
namespace {

// CPUs that a container's quota allows (cgroup v2, then v1), rounded up; a large number if there is
// no quota.
int QuotaCpus() {
  std::string quota;
  double period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> quota >> period) {
    if (quota != "max" && period > 0)
      return std::max(1, static_cast<int>(std::ceil(std::atof(quota.c_str()) / period)));
    return 1 << 20;
  }
  double v1 = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
      period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> v1 && period_file >> period && v1 > 0 && period > 0) {
    return std::max(1, static_cast<int>(std::ceil(v1 / period)));
  }
  return 1 << 20;
}

int NumCpus() {
  cpu_set_t set;
  const int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return std::max(1, std::min(cpus, QuotaCpus()));
}

int NumThreads() {
  const auto wanted = static_cast<int>(env::GetInt(env::Id::kIntHostThreads));
  if (wanted > 0) return wanted;
  const char* openmp = std::getenv("OMP_NUM_THREADS");
  const int threads = openmp != nullptr ? std::atoi(openmp) : 0;
  return threads > 0 ? threads : NumCpus();
}

// One ParallelFor. Lives on the caller's stack: helpers register before they touch it.
struct Job {
  FunctionRef<void(int64_t)> fn;
  const int64_t n;
  std::atomic<int64_t> next{0};
  std::atomic<int> helpers{0};

  void Work() {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < n;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      fn(i);
    }
  }
};

thread_local bool inside_parallel = false;

// What Resize was last called with, for pools that are made later; 0: never.
std::atomic<int> resized_to{0};

class Pool {
 public:
  Pool() { Resize(resized_to.load() > 0 ? resized_to.load() : NumThreads()); }

  int size() const { return size_.load(std::memory_order_relaxed); }

  // More threads start when they are needed; too many stay asleep.
  void Resize(int n) {
    std::lock_guard lock(mutex_);
    size_.store(n, std::memory_order_relaxed);
    may_spin_.store(MaySpin(), std::memory_order_relaxed);
    started_all_ = started_ >= n - 1;
  }

  void Run(int64_t n, FunctionRef<void(int64_t)> fn) {
    Job job{fn, n};
    bool posted = false;
    {
      std::lock_guard lock(mutex_);
      Start();
      if (job_ == nullptr) {
        job_ = &job;
        generation_.fetch_add(1, std::memory_order_seq_cst);
        posted = true;
      }
    }
    if (posted && sleepers_.load(std::memory_order_seq_cst) > 0) wake_.notify_all();
    inside_parallel = true;
    job.Work();
    inside_parallel = false;
    if (!posted) return;
    {
      std::lock_guard lock(mutex_);
      job_ = nullptr;  // nobody joins from here on
    }
    // Helpers that joined are inside their last item.
    for (int spins = 0; job.helpers.load(std::memory_order_acquire) > 0; ++spins) {
      if (spins < 4096) {
        Pause();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  bool MaySpin() const {
    const char* local = std::getenv("LOCAL_WORLD_SIZE");
    const int cpus = NumCpus();
    return size() <= cpus && (local == nullptr || std::atoi(local) * size() <= cpus);
  }

  // With mutex_ held. If the system gives no more threads, those that there are do the work.
  void Start() {
    while (!started_all_) {
      try {
        if (started_ < size() - 1) {
          std::thread([this, number = started_] { Help(number); }).detach();
          ++started_;
        }
        started_all_ = started_ >= size() - 1;
      } catch (const std::system_error&) {
        started_all_ = true;
      }
    }
  }

  // number: this helper takes part while the pool has more than number + 1 threads.
  void Help(int number) {
    inside_parallel = true;
    uint64_t seen = 0;
    for (;;) {
      Job* job = nullptr;
      Await(seen, number < size() - 1);
      {
        std::lock_guard lock(mutex_);
        seen = generation_.load(std::memory_order_relaxed);
        job = number < size() - 1 ? job_ : nullptr;
        if (job != nullptr) job->helpers.fetch_add(1, std::memory_order_relaxed);
      }
      if (job == nullptr) continue;
      job->Work();
      job->helpers.fetch_sub(1, std::memory_order_release);
    }
  }

  void Await(uint64_t seen, bool takes_part) {
    const auto changed = [&] { return generation_.load(std::memory_order_seq_cst) != seen; };
    if (takes_part && may_spin_.load(std::memory_order_relaxed)) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
      do {
        for (int i = 0; i < 32; ++i) {
          if (changed()) return;
          Pause();
        }
      } while (std::chrono::steady_clock::now() < end);
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, changed);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::atomic<int> size_{1};
  std::atomic<bool> may_spin_{false};
  std::condition_variable wake_;
  int started_ = 0;
  bool started_all_ = false;
  Job* job_ = nullptr;
  std::atomic<uint64_t> generation_{0};
  std::atomic<int> sleepers_{0};
};

std::atomic<Pool*> pool{nullptr};

Pool& GetPool() {
  static std::once_flag at_fork;
  std::call_once(at_fork, [] {
    // The child has none of the threads: it starts anew (the old object is left as it is).
    pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); });
  });
  Pool* current = pool.load(std::memory_order_acquire);
  while (current == nullptr) {
    auto created = std::make_unique<Pool>();
    if (pool.compare_exchange_strong(current, created.get())) current = created.release();
  }
  return *current;
}

}  // namespace

ThreadPool& ThreadPool::Get() {
  static ThreadPool instance;
  return instance;
}

int ThreadPool::size() const { return GetPool().size(); }

void ThreadPool::Resize(int n) {
  resized_to.store(n);
  if (Pool* current = pool.load(std::memory_order_acquire)) current->Resize(n);
}

void ThreadPool::ParallelFor(int64_t n, FunctionRef<void(int64_t)> fn) {
  if (n <= 1 || inside_parallel || size() == 1) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  GetPool().Run(n, fn);
}

}  // namespace neuron::kernels
