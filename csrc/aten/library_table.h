// The one table of ops that a library computes: libtorch's CPU kernels and the LAPACK and FFT that
// they call, run by the core's queue on the core's own memory.
#pragma once

#include <span>
#include <string_view>

namespace neuron::aten {

struct LibraryOp {
  std::string_view name;    // "linalg_qr": the base form, in namespace aten
  std::string_view family;  // "linear algebra": a heading of docs/ops.md
  // The shapes of the results depend on data: the caller waits for them.
  bool shapes_from_data = false;
};

std::span<const LibraryOp> LibraryOps();
// Null if the op is not in the table.
const LibraryOp* FindLibraryOp(std::string_view name);

}  // namespace neuron::aten
