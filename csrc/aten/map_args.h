// Arguments of a call with other tensors and devices.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>

#include <optional>

namespace neuron::aten {

// The argument with `map` of each tensor, `device` for each device and no generator.
template <typename Map>
c10::IValue MapArg(const c10::IValue& value, c10::Device device, const Map& map) {
  if (value.isTensor()) return c10::IValue(map(value.toTensor()));
  if (value.isDevice()) return c10::IValue(device);
  if (value.isGenerator()) return c10::IValue();
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& element : value.toListRef()) list.push_back(map(element.toTensor()));
    return c10::IValue(list);
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& element : value.toListRef()) {
      list.push_back(element.isNone() ? std::nullopt
                                      : std::optional<at::Tensor>(map(element.toTensor())));
    }
    return c10::IValue(list);
  }
  return value;
}

}  // namespace neuron::aten
