#include "aten/device/guard.h"

#include <c10/core/Allocator.h>

#include "aten/device/errors.h"
#include "aten/dtype.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "runtime/stream.h"

namespace neuron::aten {
namespace {

c10::Stream Wrap(const runtime::Stream& stream) {
  const c10::Device device(c10::DeviceType::PrivateUse1,
                           static_cast<c10::DeviceIndex>(stream.device()));
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id());
}

runtime::Stream& Unwrap(const c10::Stream& stream) {
  return runtime::GetStream(stream.device_index(), stream.id());
}

// What an event handle points to.
struct EventHandle {
  std::unique_ptr<platform::Event> event;
  int device;
  bool timing;
};

EventHandle* Handle(void* event) { return static_cast<EventHandle*>(event); }

class NeuronGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    setDevice(device);
    return previous;
  }
  c10::Device getDevice() const override {
    return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(runtime::CurrentDevice())};
  }
  void setDevice(c10::Device device) const override {
    if (device.index() < 0) return;
    Guarded([&] { runtime::SetDevice(device.index()); });
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      if (device.index() >= 0) runtime::SetDevice(device.index());
    } catch (const Error&) {
      // It was the current device once, so it exists; nothing to tell a destructor.
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    try {
      return static_cast<c10::DeviceIndex>(runtime::DeviceCount());
    } catch (const Error&) {
      return 0;
    }
  }

  // The dtypes that the device computes with and converts between.
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    Guarded([&] { runtime::DefaultStream(Index(device)); });  // throws if there is no such device
    c10::DeviceCapability out;
    auto& has = out.capability_data.supported_scalar_types;
#define NEURON_HAS(type, name) has.has_##name = ToDType(c10::ScalarType::name).has_value();
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(NEURON_HAS)
#undef NEURON_HAS
    return out;
  }

  c10::Stream getStream(c10::Device device) const override {
    return Guarded([&] { return Wrap(runtime::CurrentStream(Index(device))); });
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return Guarded([&] { return Wrap(runtime::DefaultStream(Index(device))); });
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high) const override {
    return Guarded([&] { return Wrap(runtime::NextPoolStream(Index(device), high ? -1 : 0)); });
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    return Guarded([&] { return Wrap(runtime::NextPoolStream(Index(device), priority)); });
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return Guarded([&] { return Wrap(runtime::SetCurrentStream(Unwrap(stream))); });
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return Guarded([&] { return static_cast<void*>(&Unwrap(stream)); });
  }
  bool queryStream(const c10::Stream& stream) const override {
    return Guarded([&] {
      auto& unwrapped = Unwrap(stream);
      return !unwrapped.started() || unwrapped.queue().Idle();
    });
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Guarded([&] {
      auto& unwrapped = Unwrap(stream);
      if (unwrapped.started()) unwrapped.queue().Synchronize();
    });
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    Guarded([&] { runtime::SynchronizeDevice(device < 0 ? runtime::CurrentDevice() : device); });
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data.get() == nullptr) return;
    Guarded([&] {
      runtime::RecordStream(reinterpret_cast<platform::DeviceAddress>(data.get()), Unwrap(stream));
    });
  }

  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    (void)device;
    const std::unique_ptr<EventHandle> owned(Handle(event));
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device_index,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(device_index == -1 || device_index == stream.device_index(), "Event device index ",
                static_cast<int>(device_index), " does not match recording stream's device index ",
                static_cast<int>(stream.device_index()));
    Guarded([&] {
      if (*event == nullptr) {
        const bool timing = flag == c10::EventFlag::BACKEND_DEFAULT;
        auto made = std::make_unique<EventHandle>();
        made->event = runtime::GetDevice(stream.device_index()).CreateEvent(timing);
        made->device = stream.device_index();
        made->timing = timing;
        *event = made.release();
      }
      Unwrap(stream).queue().Record(*Handle(*event)->event);
    });
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    Guarded([&] { Unwrap(stream).queue().WaitFor(*Handle(event)->event); });
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || Handle(event)->event->Query();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) Handle(event)->event->Wait();
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex device) const override {
    (void)device;
    TORCH_CHECK(first != nullptr && second != nullptr,
                "Both events must be recorded before calculating elapsed time.");
    TORCH_CHECK(Handle(first)->timing && Handle(second)->timing,
                "Both events must be created with argument 'enable_timing=True'.");
    TORCH_CHECK(queryEvent(first) && queryEvent(second),
                "Both events must be completed before calculating elapsed time.");
    const int64_t start = Handle(first)->event->CompletionTimeNanoseconds();
    return static_cast<double>(Handle(second)->event->CompletionTimeNanoseconds() - start) / 1e6;
  }

 private:
  static int Index(c10::Device device) {
    return device.index() < 0 ? runtime::CurrentDevice() : device.index();
  }
};

}  // namespace

const c10::impl::DeviceGuardImplInterface* Guard() {
  static const NeuronGuard guard;
  return &guard;
}

}  // namespace neuron::aten
