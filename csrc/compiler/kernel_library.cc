#include "compiler/kernel_library.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "compiler/codegen_version.h"
#include "compiler/llvm/api.h"
#include "kernels/cpu.h"
#include "neff/cache.h"
#include "runtime/metrics.h"
#include "support/env.h"
#include "support/error.h"

namespace neuron::compiler {
namespace {

struct Codegen {
  decltype(&neuron_codegen_compile) compile;
  decltype(&neuron_codegen_free) free;
};

// LLVM lives in a library of its own beside this one, so that neither import nor a run whose
// kernels are all on disk pays for it.
const Codegen& LoadCodegen() {
  static const Codegen codegen = [] {
    Dl_info self{};
    NEURON_CHECK(dladdr(reinterpret_cast<void*>(&LoadCodegen), &self) != 0,
                 "cannot find this library's path");
    const auto path = std::filesystem::path(self.dli_fname).parent_path() / "libneuron_codegen.so";
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      NEURON_THROW(kInternal, "cannot load the code generator: ", dlerror(),
                   "; reinstall torch-neuronx");
    }
    return Codegen{
        reinterpret_cast<decltype(&neuron_codegen_compile)>(
            dlsym(handle, "neuron_codegen_compile")),
        reinterpret_cast<decltype(&neuron_codegen_free)>(dlsym(handle, "neuron_codegen_free"))};
  }();
  return codegen;
}

void WriteText(const std::string& path, const char* text) {
  if (text != nullptr) std::ofstream(path) << text;
}

int NumThreads() { return std::max(1u, std::min(8u, std::thread::hardware_concurrency())); }

}  // namespace

KernelLibrary& KernelLibrary::Get() {
  static auto* const library = new KernelLibrary();  // its threads may outlive static destruction
  return *library;
}

KernelLibrary::KernelLibrary() : isa_(kernels::Name(kernels::ActiveIsa())) {
  fingerprint_ = std::string("codegen-") + kCodegenVersion + " " + isa_;
}

std::shared_ptr<host::KernelCode> KernelLibrary::Find(const std::string& text,
                                                      const std::string& name) {
  auto& metrics = runtime::GetCompilationMetrics();
  Hasher hasher;
  hasher.AddBytes(fingerprint_);
  // The name is for people: kernels that differ in nothing else share their code.
  const std::string_view body =
      std::string_view(text).substr(std::min(text.find('\n'), text.size()));
  hasher.AddBytes(body);
  const Hash128 key = hasher.Finish();
  auto code = std::make_shared<host::KernelCode>(key.Hex());
  {
    std::lock_guard lock(mutex_);
    const auto [it, inserted] = codes_.emplace(key, code);
    if (!inserted) {
      metrics.memory_hits.fetch_add(1, std::memory_order_relaxed);
      return it->second;
    }
  }
  if (LoadFromDisk(key, *code)) {
    code->MarkStored();
    return code;
  }
  Enqueue({key, text, name, code});
  return code;
}

bool KernelLibrary::LoadFromDisk(const Hash128& key, host::KernelCode& code) {
  const auto neff = neff::Cache::Default().Load(key, fingerprint_);
  if (!neff) return false;
  const std::string* bytes = neff->Find("code");
  const std::string* entry = neff->Find("entry");
  uint64_t offset = UINT64_MAX;
  if (entry != nullptr && entry->size() == sizeof offset)
    std::memcpy(&offset, entry->data(), sizeof offset);
  if (bytes == nullptr || offset >= bytes->size()) {
    neff::Cache::Default().Reject(key);
    return false;
  }
  auto blob = std::make_unique<host::CodeBlob>(bytes->data(), bytes->size());
  runtime::GetCompilationMetrics().disk_hits.fetch_add(1, std::memory_order_relaxed);
  runtime::GetCompilationMetrics().CountCode(static_cast<int64_t>(bytes->size()));
  code.Set(std::move(blob), offset);
  return true;
}

void KernelLibrary::Enqueue(Job job) {
  std::lock_guard lock(mutex_);
  if (threads_.empty()) {
    LoadCodegen();  // before the exit handler below, so that its destructors run after it
    std::atexit([] { Get().StopAtExit(); });
  }
  jobs_.push_back(std::move(job));
  if (threads_.size() < static_cast<size_t>(NumThreads()) && threads_.size() < jobs_.size()) {
    threads_.emplace_back([this] { Work(); });
  }
  changed_.notify_one();
}

void KernelLibrary::Work() {
  for (;;) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    try {
      Generate(job);
    } catch (...) {
      job.code->Fail(std::current_exception());
    }
    job.code->MarkStored();
  }
}

void KernelLibrary::StopAtExit() {
  std::deque<Job> dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  const auto error = std::make_exception_ptr(Error(ErrorCode::kInternal, "the process is exiting"));
  for (Job& job : dropped) {
    job.code->Fail(error);
    job.code->MarkStored();
  }
}

void KernelLibrary::Generate(const Job& job) {
  const auto lock = neff::Cache::Default().Lock(job.key);  // another process may be generating it
  if (lock != nullptr && LoadFromDisk(job.key, *job.code)) return;
  const auto start = std::chrono::steady_clock::now();
  const std::string& debug = env::GetString(env::Id::kStringDebugDir);
  const Codegen& codegen = LoadCodegen();
  neuron_codegen_result result =
      codegen.compile(job.text.data(), job.text.size(), isa_.c_str(), !debug.empty());
  if (!debug.empty()) {
    std::filesystem::create_directories(debug);
    const std::string base = debug + "/" + job.name + "." + job.key.Hex().substr(0, 8);
    WriteText(base + ".loop", job.text.c_str());
    WriteText(base + ".ll", result.llvm_ir);
    WriteText(base + ".s", result.assembly);
  }
  if (result.error != nullptr) {
    const std::string message = result.error;
    codegen.free(&result);
    NEURON_THROW(kUnsupported, "cannot compile kernel ", job.name, ": ", message);
  }
  neff::Neff neff;
  neff.fingerprint = fingerprint_;
  const uint64_t entry = result.entry;
  neff.sections = {{"kind", "kernel"},
                   {"ir", job.text},
                   {"code", std::string(result.code, result.size)},
                   {"entry", std::string(reinterpret_cast<const char*>(&entry), sizeof entry)}};
  codegen.free(&result);
  const std::string& code = neff.sections[2].second;
  auto blob = std::make_unique<host::CodeBlob>(code.data(), code.size());
  auto& metrics = runtime::GetCompilationMetrics();
  metrics.compilations.fetch_add(1, std::memory_order_relaxed);
  const int64_t elapsed =
      std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  metrics.compile_nanoseconds.fetch_add(elapsed, std::memory_order_relaxed);
  metrics.compile_times.Add(static_cast<double>(elapsed) * 1e-9);
  metrics.neff_sizes.Add(static_cast<double>(neff::Serialize(neff).size()));
  metrics.CountCode(static_cast<int64_t>(code.size()));
  // After counting: whoever waited for the code sees it counted.
  job.code->Set(std::move(blob), entry, elapsed);
  neff::Cache::Default().Store(job.key, neff);
}

}  // namespace neuron::compiler
