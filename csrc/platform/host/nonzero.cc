// The engine behind nonzero: positions of the elements that are not 0, in row-major order.
#include <cstring>

#include "platform/host/engines.h"
#include "platform/host/library.h"

namespace neuron::host {
namespace {

// Whether the element's bytes are anything but +0 or -0.
bool IsNonzero(const char* element, DType dtype) {
  switch (dtype) {
    case DType::kF32: {
      float value;
      std::memcpy(&value, element, sizeof value);
      return value != 0;
    }
    case DType::kF64: {
      double value;
      std::memcpy(&value, element, sizeof value);
      return value != 0;
    }
    case DType::kC64:
      return IsNonzero(element, DType::kF32) || IsNonzero(element + 4, DType::kF32);
    case DType::kC128:
      return IsNonzero(element, DType::kF64) || IsNonzero(element + 8, DType::kF64);
    case DType::kF16:
    case DType::kBF16: {
      uint16_t bits;
      std::memcpy(&bits, element, sizeof bits);
      return (bits & 0x7fff) != 0;
    }
    default:
      for (int i = 0; i < ByteSize(dtype); ++i) {
        if (element[i] != 0) return true;
      }
      return false;
  }
}

// tensors: x [d0, ...], positions i64 [n, rank].
void Nonzero(const LibraryCall& call) {
  const TensorDesc& x = call.tensors[0];
  const TensorDesc& out = call.tensors[1];
  const auto* data = static_cast<const char*>(call.data[0]);
  auto* positions = static_cast<int64_t*>(call.data[1]);
  const size_t rank = x.dims.size();
  std::vector<int64_t> index(rank, 0);
  int64_t row = 0;
  int64_t total = 1;
  for (int64_t d : x.dims) total *= d;
  for (int64_t i = 0; i < total; ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < rank; ++d) offset += index[d] * x.strides[d];
    if (row < out.dims[0] && IsNonzero(data + offset * ByteSize(x.dtype), x.dtype)) {
      for (size_t d = 0; d < rank; ++d) {
        positions[row * out.strides[0] + static_cast<int64_t>(d) * out.strides[1]] = index[d];
      }
      ++row;
    }
    for (size_t d = rank; d-- > 0;) {
      if (++index[d] < x.dims[d]) break;
      index[d] = 0;
    }
  }
}

}  // namespace

void RegisterDataEngines() { RegisterLibraryFunction("nonzero", Nonzero); }

}  // namespace neuron::host
