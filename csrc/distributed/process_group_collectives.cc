// The collectives of ProcessGroupNeuron: c10d's forms of them on those of collectives.h.
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "distributed/call.h"

namespace neuron::distributed {
namespace {

using c10d::OpType;
using Tensors = ProcessGroupNeuron::Tensors;

// The reduction of the tensors' dtype; complex numbers are reduced as pairs of reals.
struct Plan {
  Reducer reducer;
  int64_t per_element = 1;
};

Plan PlanOf(const c10d::ReduceOp& op, at::ScalarType dtype, Description& description) {
  Plan plan{{Reduction::kSum, dtype}};
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      break;
    case c10d::ReduceOp::AVG:
      plan.reducer.reduction = Reduction::kAverage;
      break;
    case c10d::ReduceOp::PRODUCT:
      plan.reducer.reduction = Reduction::kProduct;
      break;
    case c10d::ReduceOp::MIN:
      plan.reducer.reduction = Reduction::kMin;
      break;
    case c10d::ReduceOp::MAX:
      plan.reducer.reduction = Reduction::kMax;
      break;
    case c10d::ReduceOp::BAND:
      plan.reducer.reduction = Reduction::kAnd;
      break;
    case c10d::ReduceOp::BOR:
      plan.reducer.reduction = Reduction::kOr;
      break;
    case c10d::ReduceOp::BXOR:
      plan.reducer.reduction = Reduction::kXor;
      break;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* more = dynamic_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(more != nullptr, "ReduceOp.PREMUL_SUM without its factor");
      plan.reducer.factor =
          more->tensor_factor.defined() ? more->tensor_factor.item<double>() : more->double_factor;
      break;
    }
    default:
      TORCH_CHECK_VALUE(false, "unknown ReduceOp ", static_cast<int>(op.op_));
  }
  const Reduction reduction = plan.reducer.reduction;
  if (c10::isComplexType(dtype) &&
      (reduction == Reduction::kSum || reduction == Reduction::kAverage)) {
    plan.reducer.dtype = c10::toRealValueType(dtype);
    plan.per_element = 2;
  }
  aten::Guarded([&] { CheckReduction(reduction, plan.reducer.dtype); });
  std::strncpy(description.reduction, Name(reduction), sizeof description.reduction - 1);
  return plan;
}

// [ranks][numel of `like`] on its device.
at::Tensor Flat(const at::Tensor& like, size_t ranks) {
  return at::empty({static_cast<int64_t>(ranks), like.numel()}, like.options());
}

void CheckList(const char* name, const Tensors& list, int size, const at::Tensor& like) {
  TORCH_CHECK_VALUE(list.size() == static_cast<size_t>(size), name, ": a list of ", size,
                    " tensors is needed, one for each rank; got ", list.size());
  for (const at::Tensor& tensor : list) {
    Checked(name, tensor);
    TORCH_CHECK_VALUE(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
                      name, ": the list holds a tensor of ", tensor.scalar_type(), tensor.sizes(),
                      " where ", like.scalar_type(), like.sizes(), " is needed");
  }
}

void CheckRatio(const char* name, const at::Tensor& big, const at::Tensor& small, int size) {
  TORCH_CHECK_VALUE(big.numel() == small.numel() * size && big.scalar_type() == small.scalar_type(),
                    name, ": a tensor of ", big.scalar_type(), big.sizes(), " does not hold ", size,
                    " times one of ", small.scalar_type(), small.sizes());
}

int64_t NumBytes(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

}  // namespace

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::broadcast(Tensors& tensors,
                                                          const c10d::BroadcastOptions& options) {
  const at::Tensor& tensor = Single("broadcast", tensors);
  Call call(*this, {OpType::BROADCAST, "broadcast", options.asyncOp, options.timeout},
            tensor.device().index());
  const at::Tensor dense = call.DenseResult(tensor, true);
  const int root = static_cast<int>(options.rootRank);
  call.Describe(dense);
  call.description().root = root;
  call.Submit([data = Address(dense), bytes = NumBytes(dense), root](const Round& round) {
    Broadcast(round, data, bytes, root);
  });
  return call.Finish(tensors);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::allreduce(Tensors& tensors,
                                                          const c10d::AllreduceOptions& options) {
  const at::Tensor& tensor = Single("all_reduce", tensors);
  Call call(*this, {OpType::ALLREDUCE, "all_reduce", options.asyncOp, options.timeout},
            tensor.device().index());
  const Plan plan = PlanOf(options.reduceOp, tensor.scalar_type(), call.description());
  const at::Tensor dense = call.DenseResult(tensor, true);
  call.Describe(dense);
  call.Submit([plan, data = Address(dense), n = dense.numel() * plan.per_element](
                  const Round& round) { AllReduce(round, plan.reducer, data, n); });
  return call.Finish(tensors);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK_VALUE(!tensors.empty(), "all_reduce_coalesced: no tensors");
  std::vector<WorkPtr> works;
  for (const at::Tensor& tensor : tensors) {
    Tensors one{tensor};
    works.push_back(allreduce(one, options));
  }
  return Together(std::move(works));
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::reduce(Tensors& tensors,
                                                       const c10d::ReduceOptions& options) {
  const at::Tensor& tensor = Single("reduce", tensors);
  Call call(*this, {OpType::REDUCE, "reduce", options.asyncOp, options.timeout},
            tensor.device().index());
  const Plan plan = PlanOf(options.reduceOp, tensor.scalar_type(), call.description());
  const at::Tensor dense = call.DenseResult(tensor, true);
  const int root = static_cast<int>(options.rootRank);
  call.Describe(dense);
  call.description().root = root;
  call.Submit([plan, data = Address(dense), n = dense.numel() * plan.per_element,
               root](const Round& round) { AllReduce(round, plan.reducer, data, n, root); });
  return call.Finish(tensors);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::allgather(std::vector<Tensors>& outputs,
                                                          Tensors& inputs,
                                                          const c10d::AllgatherOptions& options) {
  const at::Tensor& input = Single("all_gather", inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1, "all_gather: expected one list of outputs");
  CheckList("all_gather", outputs[0], size_, input);
  Call call(*this, {OpType::ALLGATHER, "all_gather", options.asyncOp, options.timeout},
            input.device().index());
  const at::Tensor dense = call.Dense(input);
  const at::Tensor flat = Flat(input, outputs[0].size());
  call.Describe(dense);
  call.Submit([in = Address(dense), out = Address(flat),
               bytes = NumBytes(dense)](const Round& round) { AllGather(round, in, out, bytes); });
  call.Spread(flat, outputs[0]);
  return call.Finish(outputs[0]);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::_allgather_base(
    at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  constexpr const char* kName = "all_gather_into_tensor";
  CheckRatio(kName, Checked(kName, output), Checked(kName, input), size_);
  Call call(*this, {OpType::_ALLGATHER_BASE, kName, options.asyncOp, options.timeout},
            input.device().index());
  const at::Tensor dense = call.Dense(input);
  const at::Tensor result = call.DenseResult(output, false);
  call.Describe(dense);
  call.Submit([in = Address(dense), out = Address(result),
               bytes = NumBytes(dense)](const Round& round) { AllGather(round, in, out, bytes); });
  return call.Finish({output});
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "all_gather_into_tensor_coalesced: ", outputs.size(), " outputs for ",
                    inputs.size(), " inputs");
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i)
    works.push_back(_allgather_base(outputs[i], inputs[i], options));
  return Together(std::move(works));
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::allgather_coalesced(
    std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == static_cast<size_t>(size_) && !inputs.empty(),
                    "all_gather_coalesced: ", size_,
                    " lists of outputs are needed, one for each "
                    "rank; got ",
                    outputs.size());
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> gathered(1);
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), "all_gather_coalesced: a list of ",
                        list.size(), " outputs for ", inputs.size(), " inputs");
      gathered[0].push_back(list[i]);
    }
    Tensors one{inputs[i]};
    works.push_back(allgather(gathered, one, options));
  }
  return Together(std::move(works));
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::gather(std::vector<Tensors>& outputs,
                                                       Tensors& inputs,
                                                       const c10d::GatherOptions& options) {
  const at::Tensor& input = Single("gather", inputs);
  const int root = static_cast<int>(options.rootRank);
  const bool gets = root == rank_;
  TORCH_CHECK_VALUE(outputs.size() == (gets ? 1 : 0), "gather: only the root takes outputs");
  if (gets) CheckList("gather", outputs[0], size_, input);
  Call call(*this, {OpType::GATHER, "gather", options.asyncOp, options.timeout},
            input.device().index());
  const at::Tensor dense = call.Dense(input);
  const at::Tensor flat = Flat(input, gets ? outputs[0].size() : 0);
  call.Describe(dense);
  call.description().root = root;
  call.Submit([in = Address(dense), out = Address(flat), bytes = NumBytes(dense),
               root](const Round& round) { AllGather(round, in, out, bytes, root); });
  if (!gets) return call.Finish({});
  call.Spread(flat, outputs[0]);
  return call.Finish(outputs[0]);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::scatter(Tensors& outputs,
                                                        std::vector<Tensors>& inputs,
                                                        const c10d::ScatterOptions& options) {
  const at::Tensor& output = Single("scatter", outputs);
  const int root = static_cast<int>(options.rootRank);
  const bool gives = root == rank_;
  TORCH_CHECK_VALUE(inputs.size() == (gives ? 1 : 0), "scatter: only the root gives inputs");
  if (gives) CheckList("scatter", inputs[0], size_, output);
  Call call(*this, {OpType::SCATTER, "scatter", options.asyncOp, options.timeout},
            output.device().index());
  const at::Tensor joined = gives ? call.Joined(inputs[0]) : at::Tensor();
  const at::Tensor result = call.DenseResult(output, false);
  call.Describe(result);
  call.description().root = root;
  call.Submit([in = gives ? Address(joined) : nullptr, out = Address(result),
               bytes = NumBytes(result),
               root](const Round& round) { Scatter(round, in, out, bytes, root); });
  return call.Finish(outputs);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  constexpr const char* kName = "reduce_scatter_tensor";
  CheckRatio(kName, Checked(kName, input), Checked(kName, output), size_);
  Call call(*this, {OpType::_REDUCE_SCATTER_BASE, kName, options.asyncOp, options.timeout},
            input.device().index());
  const Plan plan = PlanOf(options.reduceOp, input.scalar_type(), call.description());
  const at::Tensor dense = call.Dense(input);
  const at::Tensor result = call.DenseResult(output, false);
  call.Describe(dense);
  call.Submit([plan, in = Address(dense), out = Address(result),
               n = result.numel() * plan.per_element](const Round& round) {
    ReduceScatter(round, plan.reducer, in, out, n);
  });
  return call.Finish({output});
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::reduce_scatter(
    Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ReduceScatterOptions& options) {
  const at::Tensor& output = Single("reduce_scatter", outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1, "reduce_scatter: expected one list of inputs");
  CheckList("reduce_scatter", inputs[0], size_, output);
  Call call(*this, {OpType::REDUCE_SCATTER, "reduce_scatter", options.asyncOp, options.timeout},
            output.device().index());
  const Plan plan = PlanOf(options.reduceOp, output.scalar_type(), call.description());
  const at::Tensor joined = call.Joined(inputs[0]);
  const at::Tensor result = call.DenseResult(output, false);
  call.Describe(joined);
  call.Submit([plan, in = Address(joined), out = Address(result),
               n = result.numel() * plan.per_element](const Round& round) {
    ReduceScatter(round, plan.reducer, in, out, n);
  });
  return call.Finish(outputs);
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "reduce_scatter_tensor_coalesced: ", outputs.size(), " outputs for ",
                    inputs.size(), " inputs");
  std::vector<WorkPtr> works;
  for (size_t i = 0; i < inputs.size(); ++i)
    works.push_back(_reduce_scatter_base(outputs[i], inputs[i], options));
  return Together(std::move(works));
}

namespace {

// Bytes for each rank: equal parts of the first dimension if no splits are given.
std::vector<int64_t> SplitBytes(const at::Tensor& tensor, const std::vector<int64_t>& splits,
                                int size) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const int64_t row_bytes = rows == 0 ? 0 : NumBytes(tensor) / rows;
  std::vector<int64_t> out(static_cast<size_t>(size), rows / size * row_bytes);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "all_to_all_single: ", rows, " rows of ", tensor.sizes(),
                      " do not divide by ", size, " ranks: give split sizes");
    return out;
  }
  TORCH_CHECK_VALUE(splits.size() == out.size() &&
                        std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows &&
                        std::all_of(splits.begin(), splits.end(), [](auto n) { return n >= 0; }),
                    "all_to_all_single: split sizes ", splits, " do not add up to the ", rows,
                    " rows of ", tensor.sizes(), " for ", size, " ranks");
  std::transform(splits.begin(), splits.end(), out.begin(),
                 [&](int64_t n) { return n * row_bytes; });
  return out;
}

}  // namespace

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
    std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all_single";
  const auto in_bytes = SplitBytes(Checked(kName, input), input_splits, size_);
  const auto out_bytes = SplitBytes(Checked(kName, output), output_splits, size_);
  TORCH_CHECK_VALUE(input.scalar_type() == output.scalar_type(), kName, ": input of ",
                    input.scalar_type(), ", output of ", output.scalar_type());
  Call call(*this, {OpType::ALLTOALL_BASE, kName, options.asyncOp, options.timeout},
            input.device().index());
  const at::Tensor dense = call.Dense(input);
  const at::Tensor result = call.DenseResult(output, false);
  call.Describe(dense, false);
  call.Submit([in = Address(dense), out = Address(result), in_bytes,
               out_bytes](const Round& round) { AllToAll(round, in, in_bytes, out, out_bytes); });
  return call.Finish({output});
}

ProcessGroupNeuron::WorkPtr ProcessGroupNeuron::alltoall(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllToAllOptions& options) {
  constexpr const char* kName = "all_to_all";
  const auto ranks = static_cast<size_t>(size_);
  TORCH_CHECK_VALUE(outputs.size() == ranks && inputs.size() == ranks, kName, ": ", size_,
                    " inputs and outputs are needed, one for each rank");
  std::vector<int64_t> in_bytes, out_bytes;
  int64_t elements = 0;
  for (const at::Tensor& tensor : inputs) in_bytes.push_back(NumBytes(Checked(kName, tensor)));
  for (const at::Tensor& tensor : outputs) {
    out_bytes.push_back(NumBytes(Checked(kName, tensor)));
    elements += tensor.numel();
  }
  Call call(*this, {OpType::ALLTOALL, kName, options.asyncOp, options.timeout},
            inputs[0].device().index());
  const at::Tensor joined = call.Joined(inputs);
  const at::Tensor flat = at::empty({elements}, outputs[0].options());
  call.Describe(joined, false);
  call.Submit([in = Address(joined), out = Address(flat), in_bytes, out_bytes](const Round& round) {
    AllToAll(round, in, in_bytes, out, out_bytes);
  });
  call.Spread(flat, outputs);
  return call.Finish(outputs);
}

}  // namespace neuron::distributed
