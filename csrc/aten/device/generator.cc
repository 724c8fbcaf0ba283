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

// What the next numbers depend on. Generators may share it (graphsafe_set_state).
struct Philox {
  std::mutex mutex;
  uint64_t seed = c10::default_rng_seed_val;
  uint64_t offset = 0;
};

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device,
                           std::shared_ptr<Philox> state = std::make_shared<Philox>())
      : c10::GeneratorImpl(c10::Device(c10::DeviceType::PrivateUse1, device),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        state_(std::move(state)) {}

  void set_current_seed(uint64_t seed) override { Assign(seed, 0); }
  void set_offset(uint64_t offset) override {
    std::lock_guard lock(state_->mutex);
    state_->offset = offset;
  }
  uint64_t get_offset() const override { return Words().second; }
  uint64_t current_seed() const override { return Words().first; }
  uint64_t seed() override {
    const uint64_t seed = c10::detail::getNonDeterministicRandom(true);
    Assign(seed, 0);
    return seed;
  }

  void set_state(const c10::TensorImpl& state) override {
    at::detail::check_rng_state(state);
    const auto bytes = static_cast<size_t>(state.numel());
    TORCH_CHECK(bytes == kStateBytes || bytes == sizeof(uint64_t),
                "RNG state is wrong size: ", bytes, " bytes, expected ", kStateBytes,
                " (or 8, a seed alone)");
    uint64_t words[2] = {0, 0};
    std::memcpy(words, state.data(), bytes);
    Assign(words[0], words[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state =
        at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte, std::nullopt,
                              std::nullopt, std::nullopt, std::nullopt);
    const auto [seed, offset] = Words();
    const uint64_t words[2] = {seed, offset};
    std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
    return state.getIntrusivePtr();
  }

  // A generator that shares this one's state: each sees what the other draws.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override {
    return c10::make_intrusive<NeuronGenerator>(device().index(), state_);
  }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl>& state) override {
    const auto* other = dynamic_cast<const NeuronGenerator*>(state.get());
    TORCH_CHECK_TYPE(other != nullptr, "expected the state of a neuron generator");
    state_ = other->state_;
  }

  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // Seed, and the first of `count` counters that are the caller's alone.
  std::pair<uint64_t, uint64_t> Reserve(uint64_t count) {
    std::lock_guard lock(state_->mutex);
    return {state_->seed, std::exchange(state_->offset, state_->offset + count)};
  }

 private:
  NeuronGenerator* clone_impl() const override {
    auto copy = std::make_unique<NeuronGenerator>(device().index());
    const auto [seed, offset] = Words();
    copy->Assign(seed, offset);
    return copy.release();
  }
  void Assign(uint64_t seed, uint64_t offset) {
    std::lock_guard lock(state_->mutex);
    state_->seed = seed;
    state_->offset = offset;
  }
  std::pair<uint64_t, uint64_t> Words() const {
    std::lock_guard lock(state_->mutex);
    return {state_->seed, state_->offset};
  }

  std::shared_ptr<Philox> state_;
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
  TORCH_CHECK(impl->device().index() == device, "Expected a generator of neuron:", device,
              ", where the tensor is, but found one of ", impl->device());
  std::lock_guard lock(impl->mutex_);
  return impl->Reserve(count);
}

}  // namespace neuron::aten
