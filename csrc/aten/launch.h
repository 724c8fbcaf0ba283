// Launches of the device's own ops from C++.
#pragma once

#include <ATen/core/TensorBody.h>

namespace neuron::aten {

// dst = src on one core, whatever their dtypes and strides; equal shapes (src may have strides 0).
void LaunchStridedCopy(const at::Tensor& dst, const at::Tensor& src);

}  // namespace neuron::aten
