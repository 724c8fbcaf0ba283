#include "platform/host/executable.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "kernels/thread_pool.h"
#include "kernels/workspace.h"
#include "platform/host/epilogue.h"
#include "platform/host/helpers.h"
#include "support/error.h"

namespace neuron::host {
namespace {

// Chunks of a split kernel: more than threads, so that an unlucky thread does not hold up the rest;
// their number depends on the work alone.
constexpr int64_t kMaxChunks = 64;

constexpr int64_t kKernelOutOfMemory = 3;

[[noreturn]] void ThrowKernelError(const KernelError& error) {
  if (error.code == 1) {
    NEURON_THROW(kOutOfRange, "index ", error.value, " is out of bounds for dimension with size ",
                 error.limit);
  }
  if (error.code == 2) NEURON_THROW(kFailedExecution, "ZeroDivisionError");
  if (error.code == kKernelOutOfMemory) {
    NEURON_THROW(kOutOfMemory, "no memory for ", error.limit,
                 " bytes that a kernel keeps from one pass to the next");
  }
  NEURON_THROW(kInternal, "kernel error ", error.code);
}

void* Resolve(const OperandRef& operand, const uint64_t* addresses) {
  if (operand.index < 0) return nullptr;
  return reinterpret_cast<void*>(addresses[operand.index] +
                                 static_cast<uint64_t>(operand.byte_offset));
}

void RunKernel(const KernelStep& step, const uint64_t* addresses, const uint64_t* scalar_words) {
  void* operands[kMaxOperands];
  for (size_t i = 0; i < step.operands.size(); ++i)
    operands[i] = Resolve(step.operands[i], addresses);
  uint64_t scalars[kMaxOperands];
  for (size_t i = 0; i < step.scalars.size(); ++i) scalars[i] = scalar_words[step.scalars[i]];
  KernelError error;
  const KernelContext context{HelperTable(), &error, nullptr};
  const KernelFn fn = step.code->Get();
  // Tasks of the pool do not throw.
  const auto run = [&](int64_t begin, int64_t end) noexcept {
    KernelContext own = context;
    if (step.kept_bytes > 0) {
      own.kept = kernels::TryGetScratch(kernels::Scratch::kKept, step.kept_bytes);
      if (own.kept == nullptr) {
        error = {kKernelOutOfMemory, 0, step.kept_bytes};
        return;
      }
    }
    fn(operands, step.params.data(), scalars, begin, end, &own);
  };
  if (step.items <= step.grain) {
    run(0, step.items);
  } else {
    const int64_t chunks = std::min(kMaxChunks, (step.items + step.grain - 1) / step.grain);
    kernels::ThreadPool::Get().ParallelFor(chunks, [&](int64_t chunk) {
      run(step.items * chunk / chunks, step.items * (chunk + 1) / chunks);
    });
  }
  if (error.code != 0) ThrowKernelError(error);
}

void RunLibrary(const LibraryStep& step, const uint64_t* addresses, const uint64_t* scalar_words) {
  std::vector<void*> data;
  for (const OperandRef& operand : step.operands) data.push_back(Resolve(operand, addresses));
  std::vector<uint64_t> scalars;
  for (int index : step.scalars) scalars.push_back(scalar_words[index]);
  if (!step.epilogue) {
    step.fn({data, step.tensors, step.attributes, scalars});
    return;
  }
  const KernelStep& kernel = step.epilogue->kernel;
  void* operands[kMaxOperands];
  for (size_t i = 0; i < kernel.operands.size(); ++i)
    operands[i] = Resolve(kernel.operands[i], addresses);
  uint64_t kernel_scalars[kMaxOperands];
  for (size_t i = 0; i < kernel.scalars.size(); ++i)
    kernel_scalars[i] = scalar_words[kernel.scalars[i]];
  KernelError error;
  const KernelContext context{HelperTable(), &error, nullptr};
  const EpilogueRun run{*step.epilogue, kernel.code->Get(), operands, kernel_scalars, context};
  const auto finished = [&](const kernels::GemmBlock& block) { RunEpilogue(run, block); };
  const kernels::GemmEpilogue callback(finished);
  step.fn({data, step.tensors, step.attributes, scalars, &callback});
  if (error.code != 0) ThrowKernelError(error);
}

void RunStep(const Step& step, const uint64_t* addresses, const uint64_t* scalar_words) {
  if (step.kind == Step::kKernel) {
    RunKernel(step.kernel, addresses, scalar_words);
  } else {
    RunLibrary(step.library, addresses, scalar_words);
  }
}

}  // namespace

CodeBlob::CodeBlob(const void* code, size_t size) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapped_ = (size + page - 1) / page * page;
  void* base = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) NEURON_THROW(kOutOfMemory, "no memory for ", size, " bytes of code");
  std::memcpy(base, code, size);
  if (mprotect(base, mapped_, PROT_READ | PROT_EXEC) != 0) {
    munmap(base, mapped_);
    NEURON_THROW(kInternal,
                 "this system does not allow generated code to be executed (mprotect failed)");
  }
  base_ = base;
}

CodeBlob::~CodeBlob() { munmap(base_, mapped_); }

KernelFn CodeBlob::EntryAt(size_t offset) const {
  NEURON_CHECK(offset < mapped_, "entry outside the code");
  return reinterpret_cast<KernelFn>(static_cast<char*>(base_) + offset);
}

KernelFn KernelCode::Get() const {
  if (state_.load(std::memory_order_acquire) != kReady) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_.load(std::memory_order_relaxed) != kPending; });
    if (error_ != nullptr) std::rethrow_exception(error_);
  }
  return fn_;
}

int64_t KernelCode::Nanoseconds() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return state_.load(std::memory_order_relaxed) != kPending; });
  return nanoseconds_;
}

void KernelCode::Set(std::unique_ptr<CodeBlob> blob, size_t entry_offset, int64_t nanoseconds) {
  std::lock_guard lock(mutex_);
  nanoseconds_ = nanoseconds;
  fn_ = blob->EntryAt(entry_offset);
  blob_ = std::move(blob);
  state_.store(kReady, std::memory_order_release);
  changed_.notify_all();
}

void KernelCode::Fail(std::exception_ptr error) {
  std::lock_guard lock(mutex_);
  error_ = std::move(error);
  state_.store(kFailed, std::memory_order_release);
  changed_.notify_all();
}

void KernelCode::MarkStored() {
  std::lock_guard lock(mutex_);
  stored_ = true;
  changed_.notify_all();
}

void KernelCode::WaitStored() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stored_; });
}

const KernelStep* Step::Kernel() const {
  if (kind == kKernel) return &kernel;
  return library.epilogue ? &library.epilogue->kernel : nullptr;
}

bool HostExecutable::CanFail() const {
  return std::any_of(steps.begin(), steps.end(), [](const Step& step) {
    const KernelStep* kernel = step.Kernel();
    return kernel != nullptr && kernel->can_fail;
  });
}

bool HostExecutable::Ready() const {
  return std::all_of(steps.begin(), steps.end(), [](const Step& step) {
    const KernelStep* kernel = step.Kernel();
    return kernel == nullptr || kernel->code->ready();
  });
}

std::string HostExecutable::Describe() const {
  // Operands by number: inputs, then outputs, then the scratch block.
  std::string out = StrCat(operands, " operands, ", scratch, " bytes of scratch\n");
  const auto add_operands = [&](const std::vector<OperandRef>& refs) {
    for (const OperandRef& ref : refs) {
      out += ref.index < 0 ? " none" : ref.index == operands ? " scratch" : StrCat(" %", ref.index);
      if (ref.byte_offset != 0) out += StrCat("+", ref.byte_offset);
    }
    out += '\n';
  };
  for (const Step& step : steps) {
    if (step.kind == Step::kKernel) {
      out += StrCat("kernel ", step.kernel.name, ", ", step.kernel.items,
                    " items: ", step.kernel.fused, "; operands");
      add_operands(step.kernel.operands);
    } else {
      out += StrCat("library ", step.library.name, "; operands");
      add_operands(step.library.operands);
      if (!step.library.epilogue) continue;
      const Epilogue& epilogue = *step.library.epilogue;
      out += StrCat("  then on each part of its result: ", epilogue.kernel.fused,
                    "; operands, the result as ", epilogue.result, ":");
      add_operands(epilogue.kernel.operands);
    }
  }
  return out;
}

std::vector<std::string> HostExecutable::CacheKeys() const {
  std::vector<std::string> keys;
  for (const Step& step : steps) {
    const KernelStep* kernel = step.Kernel();
    if (kernel == nullptr) continue;
    kernel->code->WaitStored();
    keys.push_back(kernel->code->key());
  }
  return keys;
}

void HostExecutable::Run(const uint64_t* operand_addresses, const uint64_t* scalar_words) const {
  if (measures_.load(std::memory_order_relaxed)) {
    RunMeasured(operand_addresses, scalar_words);
    return;
  }
  for (const Step& step : steps) RunStep(step, operand_addresses, scalar_words);
}

void HostExecutable::RunMeasured(const uint64_t* operand_addresses,
                                 const uint64_t* scalar_words) const {
  using Clock = std::chrono::steady_clock;
  std::vector<int64_t> spent;
  for (const Step& step : steps) {
    if (step.kind == Step::kKernel) step.kernel.code->Get();  // compiling is not running
    const Clock::time_point start = Clock::now();
    RunStep(step, operand_addresses, scalar_words);
    spent.push_back(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count());
  }
  std::lock_guard lock(times_mutex_);
  if (times_.size() != steps.size()) return;  // no longer measured
  for (size_t i = 0; i < steps.size(); ++i) {
    platform::StepTime& time = times_[i];
    time.least_nanoseconds = time.runs == 0 ? spent[i] : std::min(time.least_nanoseconds, spent[i]);
    time.nanoseconds += spent[i];
    ++time.runs;
  }
}

std::vector<platform::StepWork> HostExecutable::Work() const {
  std::vector<platform::StepWork> work;
  for (const Step& step : steps) work.push_back(step.work);
  return work;
}

int64_t HostExecutable::CompileNanoseconds() const {
  std::set<const KernelCode*> codes;  // several steps may share one
  for (const Step& step : steps) {
    if (step.kind == Step::kKernel) codes.insert(step.kernel.code.get());
  }
  int64_t total = 0;
  for (const KernelCode* code : codes) total += code->Nanoseconds();
  return total;
}

int64_t HostExecutable::PendingSteps() const {
  return std::count_if(steps.begin(), steps.end(), [](const Step& step) {
    const KernelStep* kernel = step.Kernel();
    return kernel != nullptr && !kernel->code->ready();
  });
}

void HostExecutable::MeasureSteps(bool on) const {
  std::lock_guard lock(times_mutex_);
  times_.assign(on ? steps.size() : 0, {});
  measures_.store(on, std::memory_order_relaxed);
}

std::vector<platform::StepTime> HostExecutable::StepTimes() const {
  std::lock_guard lock(times_mutex_);
  if (times_.size() != steps.size()) return std::vector<platform::StepTime>(steps.size());
  return times_;
}

}  // namespace neuron::host
