// Library functions of the software NeuronCores.
#pragma once

#include "platform/host/library.h"

namespace neuron::host {

// csrc/kernels: "gemm", "attention", "attention_grad", "convolution_weight_grad", "permute".
void RegisterEngines();
// Whether "permute" copies the one to the other (same dims, same dtype) faster than a generated
// kernel.
bool CanPermute(const TensorDesc& source, const TensorDesc& result);
// "convolution" for the dtypes that have kernels. tensors: input, weight, bias?, result; ints:
// transposed, groups, rank, then stride, padding, dilation and output padding, `rank` each.
bool CanConvolve(const LibraryCall& call);
void Convolve(const LibraryCall& call);
// What moves data by its values: "nonzero".
void RegisterDataEngines();
// Sorting and running sums: "argsort", "cumulative_add", ...
void RegisterOrderEngines();

}  // namespace neuron::host
