// Library calls: what an executable runs besides generated kernels (matmul, attention,
// convolution).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/gemm.h"
#include "support/dtype.h"

namespace neuron::host {

struct TensorDesc {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  std::vector<int64_t> strides;  // in elements
};

// Constants of a call. Each library function documents which it reads.
struct LibraryAttributes {
  std::vector<int64_t> ints;
  std::vector<double> doubles;
};

struct LibraryCall {
  std::span<void* const> data;  // one address per tensor, outputs last
  std::span<const TensorDesc> tensors;
  const LibraryAttributes& attributes;
  std::span<const uint64_t> scalars;  // run-time scalars as 64-bit words
  // For "gemm" alone: what each finished part of the result goes through. Null: nothing. With it
  // the result's address may be null.
  const kernels::GemmEpilogue* epilogue = nullptr;
};

// Throws neuron::Error, or anything derived from std::exception.
using LibraryFn = void (*)(const LibraryCall& call);

// Functions by name ("gemm", "attention", "convolution"). Layers above may add their own.
void RegisterLibraryFunction(const std::string& name, LibraryFn fn);
// Throws kUnsupported naming what is missing.
LibraryFn FindLibraryFunction(const std::string& name);

}  // namespace neuron::host
