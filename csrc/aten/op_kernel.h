// The one boxed kernel behind every lowered op. A call looks up its plan by a key of dtypes,
// shapes, strides and static arguments; a hit allocates the results and launches; a miss asks
// PyTorch's meta kernel for the results' metadata, lowers the op to a graph and compiles it.
#pragma once

#include <ATen/core/TensorBody.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "aten/library_table.h"
#include "aten/op_schema.h"
#include "platform/executable.h"
#include "runtime/metrics.h"
#include "support/hash.h"

namespace neuron::aten {

// The value of an ArgKind::kIntList; a single number where the schema allows that.
c10::SmallVector<int64_t, 6> IntsOf(const c10::IValue& value);

struct ResultMeta {
  bool defined = true;  // false: the op returns no tensor here for these arguments (output_mask)
  c10::SmallVector<int64_t, 6> sizes;
  c10::SmallVector<int64_t, 6> strides;
  c10::ScalarType dtype = c10::ScalarType::Float;
  size_t bytes = 0;  // of a fresh storage
  int64_t numel = 0;
};

// Where a run-time scalar of the executable comes from: argument `arg`, in its list at `element`
// (-1: the argument itself): a number, or a 0-dim CPU tensor.
struct ScalarSource {
  int arg = 0;
  int element = -1;
};

enum class PlanKind : uint8_t {
  kExecutable,
  kLibrary,     // in the table of library calls
  kLibraryNow,  // the same, and the results' shapes are known only afterwards
  kFallback,    // no code for these arguments: runs on copies in host memory
};

struct Plan {
  PlanKind kind = PlanKind::kExecutable;
  std::shared_ptr<const platform::Executable> executable;  // null: nothing to run, or not that kind
  std::vector<ResultMeta> results;
  std::vector<ScalarSource> scalars;
  std::shared_ptr<const platform::LaunchContext> context;
  int64_t random_count = 0;  // counters to reserve
};

class OpKernel final : public c10::OperatorKernel {
 public:
  // library: the op's row in the table of library calls, or null. One of entry.lower and library
  // is not null.
  OpKernel(const c10::OperatorHandle& op, const lowering::Entry& entry, const LibraryOp* library);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    (void)op;
    (void)keys;
    Run(stack);
  }
  // Pops the arguments, pushes the results.
  void Run(torch::jit::Stack* stack);

 private:
  // One call's arguments, gathered while the key is made.
  struct Call {
    Hash128 key;
    c10::Device device = c10::Device(c10::DeviceType::PrivateUse1, -1);
    c10::SmallVector<const at::Tensor*, 8> inputs;  // device tensors that the graph reads, in order
    c10::SmallVector<const at::Tensor*, 4> written;  // in the order of the schema
    at::Tensor holder;                               // keeps tensors of unpacked lists alive
    std::vector<at::Tensor> list_tensors;
  };

  void Gather(const c10::IValue* args, Call& call) const;
  void GatherTensor(const at::Tensor& tensor, const ArgSpec& spec, Hasher& hasher,
                    Call& call) const;
  void GatherOverlaps(Call& call, Hasher& hasher) const;
  std::shared_ptr<const Plan> FindPlan(const Call& call);
  std::shared_ptr<const Plan> MakePlan(const c10::IValue* args, Call& call);
  bool RunMeta(const c10::IValue* args, const Call& call, std::vector<ResultMeta>& results) const;
  void Lower(const c10::IValue* args, const Call& call, Plan& plan) const;
  std::shared_ptr<const Plan> KeepPlan(const Call& call, std::shared_ptr<const Plan> plan);
  void Launch(const Plan& plan, const c10::IValue* args, const Call& call,
              const c10::SmallVector<at::Tensor, 4>& results) const;
  // Of a library op: no meta kernel can tell the results' shapes.
  bool ShapesFromData() const;
  void LaunchLibrary(const c10::IValue* args, const Call& call,
                     const c10::SmallVector<at::Tensor, 4>& results) const;
  // Waits for the results; they are as the op returns them, tensors on the device.
  torch::jit::Stack RunLibraryNow(const c10::IValue* args, const Call& call) const;

  const c10::OperatorHandle op_;
  const lowering::Entry& entry_;
  const LibraryOp* const library_;
  const OpSchema schema_;
  runtime::OpCounter& counter_;
  std::mutex mutex_;
  std::unordered_map<Hash128, std::shared_ptr<const Plan>, Hash128Hash> plans_;
};

// The kernel of an op that is registered in the lowering table, e.g. "neuron::copy.out".
OpKernel& GetOpKernel(const std::string& name);
// Registers every table entry and its out= and in-place forms for the device.
void RegisterOps();

}  // namespace neuron::aten
