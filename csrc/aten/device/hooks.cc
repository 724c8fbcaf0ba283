#include "aten/device/hooks.h"

#include "aten/device/allocator.h"
#include "aten/device/errors.h"
#include "aten/device/generator.h"
#include "aten/device/pinned.h"
#include "runtime/allocator.h"
#include "runtime/device.h"

namespace neuron::aten {
namespace {

class NeuronHooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override {
    try {
      return runtime::DeviceCount() > 0;
    } catch (const Error&) {
      return false;  // asked by `is_available()`, which must not throw; the first use says what is
                     // wrong
    }
  }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    (void)device;
    return runtime::IsInitialized();
  }
  void init() const override {
    Guarded([] { runtime::Initialize(); });
  }
  c10::DeviceIndex deviceCount() const override {
    return Guarded([] { return static_cast<c10::DeviceIndex>(runtime::DeviceCount()); });
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    Guarded([&] { runtime::SetDevice(device); });
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(runtime::CurrentDevice());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex previous = getCurrentDevice();
    setCurrentDevice(device);
    return previous;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? getCurrentDevice() : exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return DefaultGenerator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return NewGenerator(device);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    int device = 0;
    const auto address = reinterpret_cast<platform::DeviceAddress>(data);
    TORCH_CHECK(runtime::BlockSize(address, &device) > 0,
                "the pointer does not belong to a neuron tensor");
    return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)};
  }
  bool isPinnedPtr(const void* data) const override { return PinnedBlock(data) != nullptr; }
  c10::Allocator* getPinnedMemoryAllocator() const override { return PinnedAllocator(); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    ResizeStorage(storage.unsafeGetStorageImpl(), bytes);
  }
};

}  // namespace

at::PrivateUse1HooksInterface* Hooks() {
  static NeuronHooks hooks;
  return &hooks;
}

}  // namespace neuron::aten
