// Scalar functions that generated code calls for what it has no vector code for.
#pragma once

namespace neuron::host {

// One name per IR operation that has a helper; the table holds the f32 function at 2 * op and the
// f64 function at 2 * op + 1. Unary ones are float(float), double(double); the last four are
// binary.
enum class HelperOp : int {
  kExp,
  kExp2,
  kExpm1,
  kLog,
  kLog2,
  kLog10,
  kLog1p,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kLogistic,
  kErf,
  kErfc,
  kErfInv,
  kLgamma,
  kDigamma,
  kRemainder,
  kPower,
  kAtan2,
  kNextAfter,
  kCount,
};

void* const* HelperTable();

}  // namespace neuron::host
