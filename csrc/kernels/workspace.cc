#include "kernels/workspace.h"

#include <cstdlib>
#include <memory>

#include "support/error.h"

namespace neuron::kernels {
namespace {

constexpr size_t kAlignment = 64;

struct Free {
  void operator()(void* p) const { std::free(p); }
};

struct Block {
  std::unique_ptr<void, Free> data;
  size_t size = 0;
};

}  // namespace

void* TryGetScratch(Scratch purpose, size_t bytes) noexcept {
  thread_local Block blocks[static_cast<int>(Scratch::kKept) + 1];
  Block& block = blocks[static_cast<int>(purpose)];
  if (block.size < bytes) {
    const size_t size = (bytes + bytes / 4 + kAlignment - 1) / kAlignment * kAlignment;
    block.data.reset();
    block.size = 0;
    block.data.reset(std::aligned_alloc(kAlignment, size));
    if (block.data == nullptr) return nullptr;
    block.size = size;
  }
  return block.data.get();
}

void* GetScratch(Scratch purpose, size_t bytes) {
  void* data = TryGetScratch(purpose, bytes);
  if (data == nullptr) NEURON_THROW(kOutOfMemory, "no memory for ", bytes, " bytes of scratch");
  return data;
}

}  // namespace neuron::kernels
