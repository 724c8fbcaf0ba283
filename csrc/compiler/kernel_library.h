// Machine code of loop kernels by their text: in memory, on disk, or generated in the background.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "platform/host/executable.h"
#include "support/hash.h"

namespace neuron::compiler {

class KernelLibrary {
 public:
  // Created on first call, lives as long as the process; its threads start at the first kernel that
  // has to be generated.
  static KernelLibrary& Get();

  // Never blocks on code generation: the returned code may be pending. Thread-safe.
  std::shared_ptr<host::KernelCode> Find(const std::string& text, const std::string& name);

  // "codegen-<version> <isa>": what machine code depends on besides the text.
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  struct Job {
    Hash128 key;
    std::string text, name;
    std::shared_ptr<host::KernelCode> code;
  };

  KernelLibrary();
  bool LoadFromDisk(const Hash128& key, host::KernelCode& code);
  void Enqueue(Job job);
  void Work();
  void Generate(const Job& job);
  void StopAtExit();

  std::string isa_, fingerprint_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<Hash128, std::shared_ptr<host::KernelCode>, Hash128Hash> codes_;
  std::deque<Job> jobs_;
  std::vector<std::thread> threads_;
  bool stopping_ = false;
};

}  // namespace neuron::compiler
