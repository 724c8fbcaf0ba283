#include "aten/device/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <c10/core/GeneratorImpl.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "aten/device/errors.h"
#include "runtime/device.h"

namespace neuron::aten {
namespace {

constexpr size_t kStateBytes = 16;  // seed u64, offset i64, as torch.cuda's

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device)
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

  void set_current_seed(uint64_t seed) override {
    seed_ = seed;
    offset_ = 0;
  }
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override {
    set_current_seed(c10::detail::getNonDeterministicRandom(true));
    return seed_;
  }

  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    const auto bytes = static_cast<size_t>(state.numel());
    TORCH_CHECK(bytes == kStateBytes || bytes == sizeof(uint64_t),
                "RNG state is wrong size: ", bytes, " bytes, expected ", kStateBytes,
                " (or 8, a seed alone)");
    uint64_t words[2] = {0, 0};
    std::memcpy(words, state.data(), bytes);
    seed_ = words[0];
    offset_ = words[1];
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state =
        at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte, std::nullopt,
                              std::nullopt, std::nullopt, std::nullopt);
    const uint64_t words[2] = {seed_, offset_};
    std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
    return state.getIntrusivePtr();
  }

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  uint64_t Reserve(uint64_t count) { return std::exchange(offset_, offset_ + count); }

 private:
  NeuronGenerator* clone_impl() const override {
    auto copy = std::make_unique<NeuronGenerator>(device().index());
    copy->seed_ = seed_;
    copy->offset_ = offset_;
    return copy.release();
  }

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

c10::DeviceIndex Resolve(c10::DeviceIndex device) {
  const int index = device < 0 ? runtime::CurrentDevice() : device;
  Guarded([&] {
    if (index >= runtime::DeviceCount())
      NEURON_THROW(kOutOfRange, "neuron:", index, " does not exist");
  });
  return static_cast<c10::DeviceIndex>(index);
}

}  // namespace

at::Generator NewGenerator(c10::DeviceIndex device) {
  return at::make_generator<NeuronGenerator>(Resolve(device));
}

const at::Generator& DefaultGenerator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* const generators =
      new std::vector<std::unique_ptr<at::Generator>>(128);  // one per possible device
  const auto index = static_cast<size_t>(Resolve(device));
  std::lock_guard lock(mutex);
  auto& generator = (*generators)[index];
  if (generator == nullptr) {
    generator = std::make_unique<at::Generator>(
        at::make_generator<NeuronGenerator>(static_cast<c10::DeviceIndex>(index)));
    generator->seed();
  }
  return *generator;
}

std::pair<uint64_t, uint64_t> ReserveRandom(const std::optional<at::Generator>& generator,
                                            int device, uint64_t count) {
  at::Generator chosen = generator && generator->defined()
                             ? *generator
                             : DefaultGenerator(static_cast<c10::DeviceIndex>(device));
  auto* impl = at::check_generator<NeuronGenerator>(chosen);
  std::lock_guard lock(impl->mutex_);
  return {impl->current_seed(), impl->Reserve(count)};
}

}  // namespace neuron::aten
