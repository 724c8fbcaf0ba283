// The loop-level IR: one kernel, a loop nest over a domain of dimensions with a straight-line body.
//
// Dimensions are parallel or reduced; one is the vector dimension, walked in lanes. Sizes and
// strides are run-time parameters; the text says only their class, so one kernel serves every size.
// Body instructions that do not depend on a reduced dimension are evaluated once per row; a
// reduction ends a pass over the reduced dimensions; what needs its result runs in the next pass.
// A pass computes again what it needs of earlier ones, but for values marked `keep`: the first pass
// that needs one writes it to the thread's own memory, a row long, and later ones read it there.
//
// Parameters of a launch (params of KernelFn), in this order:
//   size of each dimension; chunk; chunks; then for each instruction in order: one value per stride
//   of class kParam, one offset for an index, and (stride, limit) per indirect index.
// Work items are (row of the parallel dimensions except a parallel vector dimension) x `chunks`,
// chunk c being elements [c * chunk, min((c + 1) * chunk, size)) of a parallel vector dimension (1
// otherwise).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "support/dtype.h"

namespace neuron::loop {

enum class Kind : uint8_t {
  kLoad,     // element of operand `slot` at the affine address, plus indirect terms
  kStore,    // operands[0] to operand `slot`
  kIndex,    // i64 affine function of the indices
  kScalar,   // run-time scalar `slot`
  kConst,    // `value` (floating) or `ivalue` (integral)
  kCompute,  // elementwise `op`
  kReduce,   // `detail` over every reduced dimension
};

enum class Stride : uint8_t { kZero, kOne, kParam };

struct Inst {
  Kind kind = Kind::kCompute;
  ir::OpCode op = ir::OpCode::kAdd;
  DType dtype = DType::kF32;
  std::vector<int> operands;  // earlier instructions
  int slot = 0;
  std::vector<Stride> strides;  // one per dimension: load, store, index
  std::vector<int> indirect;    // load, store: i64 instructions that index further dimensions
  bool wrap = false;            // negative indirect indices count from the end
  bool keep = false;            // computed by the first pass that needs it, then kept in memory
  std::string detail;           // reduce kind, compare direction, store mode, rng word
  double value = 0;
  int64_t ivalue = 0;
};

struct Kernel {
  std::string name;
  std::vector<bool> reduced;  // one per dimension
  int vector_dim = 0;
  int operands = 0;
  int scalars = 0;
  std::vector<Inst> insts;
};

// The text is the key of the kernel's code: equal text, equal code.
std::string Print(const Kernel& kernel);
// Throws kInvalidArgument naming the line.
Kernel Parse(std::string_view text);
// Throws kInternal naming the instruction and the rule it breaks.
void Verify(const Kernel& kernel);

// Bit d is set if the instruction's value depends on the index of dimension d.
std::vector<uint32_t> DependenceMasks(const Kernel& kernel);
// What the kernel computes, one word per operation: "convert multiply reduce_add rsqrt".
std::string Operations(const Kernel& kernel);
// Bit s is set if pass s evaluates the instruction: for what depends on a reduced dimension, the
// passes whose reductions and stores need it, or for a kept value the first of them; one bit else.
std::vector<uint32_t> Passes(const Kernel& kernel);
// How many passes must be over before each instruction can run.
std::vector<int> PassesBefore(const Kernel& kernel);
// Marks the transcendental functions that several passes would evaluate; returns how many.
// What is kept is one value per element of the reduced dimensions, and per lane if the vector
// dimension is not reduced.
int MarkKept(Kernel& kernel);
bool IsTranscendental(ir::OpCode code);
// At most so many lanes does the vector dimension of a kernel with a parallel one have.
inline constexpr int64_t kMaxLanes = 64;
// The memory of one kept value, in elements of 8 bytes; `row`: elements of the reduced dimensions,
// times kMaxLanes if the vector dimension is not reduced. A vector may reach over the end.
constexpr int64_t KeptElements(int64_t row) { return (row + 63) / 64 * 64 + kMaxLanes; }
// Number of params values of each instruction, in order.
int NumParams(const Inst& inst);

}  // namespace neuron::loop
