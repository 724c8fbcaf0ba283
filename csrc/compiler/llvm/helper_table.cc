#include "compiler/llvm/helper_table.h"

#include "platform/host/helpers.h"

namespace neuron::codegen {

using host::HelperOp;
using ir::OpCode;

int HelperSlot(OpCode op, bool f64) {
  const auto slot = [f64](HelperOp helper) { return 2 * static_cast<int>(helper) + (f64 ? 1 : 0); };
  switch (op) {
#define NEURON_HELPER(op) \
  case OpCode::op:        \
    return slot(HelperOp::op);
    NEURON_HELPER(kExp)
    NEURON_HELPER(kExp2)
    NEURON_HELPER(kExpm1)
    NEURON_HELPER(kLog)
    NEURON_HELPER(kLog2)
    NEURON_HELPER(kLog10)
    NEURON_HELPER(kLog1p)
    NEURON_HELPER(kSin)
    NEURON_HELPER(kCos)
    NEURON_HELPER(kTan)
    NEURON_HELPER(kAsin)
    NEURON_HELPER(kAcos)
    NEURON_HELPER(kAtan)
    NEURON_HELPER(kSinh)
    NEURON_HELPER(kCosh)
    NEURON_HELPER(kTanh)
    NEURON_HELPER(kAsinh)
    NEURON_HELPER(kAcosh)
    NEURON_HELPER(kAtanh)
    NEURON_HELPER(kLogistic)
    NEURON_HELPER(kErf)
    NEURON_HELPER(kErfc)
    NEURON_HELPER(kErfInv)
    NEURON_HELPER(kLgamma)
    NEURON_HELPER(kDigamma)
    NEURON_HELPER(kRemainder)
    NEURON_HELPER(kPower)
    NEURON_HELPER(kAtan2)
    NEURON_HELPER(kNextAfter)
#undef NEURON_HELPER
    default:
      return -1;
  }
}

}  // namespace neuron::codegen
