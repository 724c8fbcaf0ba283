#include "compiler/work.h"

#include <algorithm>
#include <bit>
#include <set>

namespace neuron::compiler {

using host::TensorDesc;
using ir::OpCode;
using platform::StepWork;

namespace {

int Arithmetic(OpCode code) {
  switch (code) {
    case OpCode::kAbs:
    case OpCode::kNegate:
    case OpCode::kAdd:
    case OpCode::kSubtract:
    case OpCode::kMultiply:
    case OpCode::kDivide:
    case OpCode::kRemainder:
    case OpCode::kMaximum:
    case OpCode::kMinimum:
    case OpCode::kSqrt:
    case OpCode::kRsqrt:
      return 1;
    case OpCode::kFma:
      return 2;
    default:
      return 0;
  }
}

int64_t Elements(const TensorDesc& tensor) {
  int64_t n = 1;
  for (const int64_t size : tensor.dims) n *= size;
  return n;
}

// What lies in memory: an expanded dimension is there once.
int64_t Bytes(const TensorDesc& tensor) {
  int64_t n = ByteSize(tensor.dtype);
  for (size_t d = 0; d < tensor.dims.size(); ++d) {
    if (tensor.strides[d] != 0 || tensor.dims[d] == 0) n *= tensor.dims[d];
  }
  return n;
}

// Of a weight [K, C / groups, ..]: multiply-adds per element of the side that has K channels.
int64_t PerChannel(const TensorDesc& weight) {
  return Elements(weight) / std::max<int64_t>(1, weight.dims[0]);
}

// queries, keys, values: [batch, heads, length, size].
void CountAttention(StepWork& work, const TensorDesc& queries, const TensorDesc& keys,
                    const TensorDesc& values, const host::LibraryStep& step) {
  const auto& ints = step.attributes.ints;  // is_causal, whether there is a bias, results wanted
  const int64_t rows = queries.dims[0] * queries.dims[1] * queries.dims[2];
  const int64_t e = queries.dims[3], ev = values.dims[3];
  int64_t multiply_adds = e + ev;
  if (step.name == "attention_grad") {
    // The scores again and the gradient of the probabilities, then a product for each result.
    const int64_t wanted = ints[2];
    const bool needs_scores = (wanted & 3) != 0;
    multiply_adds = e + (needs_scores ? ev : 0);
    if ((wanted & 1) != 0) multiply_adds += e;
    if ((wanted & 2) != 0) multiply_adds += e;
    if ((wanted & 4) != 0) multiply_adds += ev;
  }
  int64_t scores = rows * keys.dims[2];
  if (ints[0] != 0) scores /= 2;
  work.flops = 2 * scores * multiply_adds;
  work.transcendentals = scores;
}

// `cached`: an operand that is not read from memory, or -1.
StepWork CountKernel(const BuiltKernel& built, int cached) {
  StepWork work;
  work.name = built.kernel.name;
  work.fused = loop::Operations(built.kernel);
  const size_t rank = built.kernel.reduced.size();
  const std::vector<uint32_t> masks = loop::DependenceMasks(built.kernel);
  const std::vector<uint32_t> passes = loop::Passes(built.kernel);
  const auto elements = [&](uint32_t mask) {
    int64_t n = 1;
    for (size_t d = 0; d < rank; ++d) {
      if ((mask >> d & 1) != 0) n *= built.params[d];
    }
    return n;
  };
  size_t next = rank + 2;  // params: sizes, chunk, chunks, then each instruction's
  std::set<std::vector<int64_t>> seen;
  for (size_t i = 0; i < built.kernel.insts.size(); ++i) {
    const loop::Inst& inst = built.kernel.insts[i];
    const int n = loop::NumParams(inst);
    const auto first = built.params.begin() + static_cast<int64_t>(next);
    next += static_cast<size_t>(n);
    if (inst.kind == loop::Kind::kLoad || inst.kind == loop::Kind::kStore) {
      const bool load = inst.kind == loop::Kind::kLoad;
      if (inst.slot == cached) continue;
      // Equal keys: the same elements of the same operand.
      std::vector<int64_t> key{load, built.operands[inst.slot], built.byte_offsets[inst.slot]};
      for (const loop::Stride stride : inst.strides) key.push_back(static_cast<int64_t>(stride));
      key.insert(key.end(), first, first + n);
      key.insert(key.end(), inst.indirect.begin(), inst.indirect.end());
      if (!seen.insert(key).second) continue;
      // A stride that the code leaves open may still be 0: the element is the same.
      uint32_t mask = 0;
      auto stride = first;
      for (size_t d = 0; d < inst.strides.size(); ++d) {
        const bool open = inst.strides[d] == loop::Stride::kParam;
        const int64_t value = open ? *stride++ : inst.strides[d] == loop::Stride::kOne;
        if (value != 0) mask |= 1u << d;
      }
      for (const int index : inst.indirect) mask |= masks[index];
      (load ? work.bytes_read : work.bytes_written) += elements(mask) * ByteSize(inst.dtype);
    } else if (inst.kind == loop::Kind::kReduce) {
      if (IsFloat(inst.dtype)) work.flops += elements(masks[inst.operands[0]]);
    } else if (inst.kind == loop::Kind::kCompute && IsFloat(inst.dtype)) {
      const int64_t evaluations = elements(masks[i]) * std::popcount(passes[i]);
      work.flops += evaluations * Arithmetic(inst.op);
      if (loop::IsTranscendental(inst.op)) work.transcendentals += evaluations;
    }
  }
  return work;
}

}  // namespace

StepWork KernelWork(const BuiltKernel& built) { return CountKernel(built, -1); }

void AddEpilogueWork(StepWork& product, const BuiltKernel& epilogue, int result, bool kept) {
  const StepWork work = CountKernel(epilogue, result);
  if (!kept) product.bytes_written = 0;
  product.fused += ", then " + work.fused;
  product.bytes_read += work.bytes_read;
  product.bytes_written += work.bytes_written;
  product.flops += work.flops;
  product.transcendentals += work.transcendentals;
}

StepWork LibraryWork(const host::LibraryStep& step, size_t results) {
  StepWork work;
  work.name = step.name;
  work.engine = true;
  const auto& tensors = step.tensors;
  for (size_t i = 0; i < tensors.size(); ++i) {
    (i + results < tensors.size() ? work.bytes_read : work.bytes_written) += Bytes(tensors[i]);
  }
  if (!tensors.empty()) work.dtype = tensors[0].dtype;
  if (step.name == "gemm") {
    // [batch, m, k] . [batch, k, n]
    work.flops = 2 * Elements(tensors.back()) * tensors[0].dims[2];
  } else if (step.name == "convolution") {
    const bool transposed = step.attributes.ints[0] != 0;
    work.flops = 2 * Elements(transposed ? tensors[0] : tensors.back()) * PerChannel(tensors[1]);
  } else if (step.name == "convolution_weight_grad") {
    work.flops = 2 * Elements(tensors[1]) * PerChannel(tensors.back());
  } else if (step.name == "attention") {
    CountAttention(work, tensors[0], tensors[1], tensors[2], step);
  } else if (step.name == "attention_grad") {
    // grad, result, log-sum-exp, then the attention's own operands
    CountAttention(work, tensors[3], tensors[4], tensors[5], step);
  }
  for (const TensorDesc& tensor : tensors) {
    std::string dims;
    for (const int64_t size : tensor.dims) dims += (dims.empty() ? "" : ",") + std::to_string(size);
    work.fused +=
        (work.fused.empty() ? "" : " ") + std::string(Name(tensor.dtype)) + "[" + dims + "]";
  }
  return work;
}

}  // namespace neuron::compiler
