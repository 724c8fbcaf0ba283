#include "aten/device/register.h"

#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "aten/device/allocator.h"
#include "aten/device/guard.h"
#include "aten/device/hooks.h"
#include "aten/device/pinned.h"

namespace neuron::aten {

void RegisterDevice() {
  c10::register_privateuse1_backend("neuron");
  at::RegisterPrivateUse1HooksInterface(Hooks());
  c10::SetAllocator(c10::DeviceType::PrivateUse1, Allocator());
  at::setHostAllocator(c10::DeviceType::PrivateUse1, PinnedAllocator());
  static const c10::impl::DeviceGuardImplRegistrar guard(c10::DeviceType::PrivateUse1, Guard());
}

}  // namespace neuron::aten
