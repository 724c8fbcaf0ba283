#include "compiler/llvm/emit.h"

#include <algorithm>

#include "platform/host/kernel_abi.h"
#include "support/error.h"

namespace neuron::codegen {

using llvm::Value;

Emitter::Emitter(const loop::Kernel& kernel, llvm::Module& module, const VectorTarget& target)
    : kernel_(kernel), module_(module), target_(target), b_(module.getContext()) {
  masks_ = loop::DependenceMasks(kernel);
  for (size_t d = 0; d < kernel.reduced.size(); ++d) {
    if (kernel.reduced[d]) reduced_mask_ |= 1u << d;
  }
  ready_ = loop::PassesBefore(kernel);
  passes_ = loop::Passes(kernel);
  for (int ready : ready_) stages_ = std::max(stages_, ready);
  width_ = ChooseWidth();
  NEURON_CHECK(width_ <= loop::kMaxLanes, width_, " lanes");
}

// Two registers of the widest type in flight hide latency without spilling; four where the body is
// so short that loop overhead shows. A lane-by-lane access gains nothing from more than one.
int Emitter::ChooseWidth() const {
  int widest = 4;
  int compute = 0;
  bool lane_by_lane = false;
  for (size_t i = 0; i < kernel_.insts.size(); ++i) {
    const loop::Inst& inst = kernel_.insts[i];
    if (!Varies(static_cast<int>(i)) && inst.kind != loop::Kind::kReduce) continue;
    widest = std::max(widest, std::min(ByteSize(inst.dtype), 8));
    compute += inst.kind == loop::Kind::kCompute;
    if (inst.kind == loop::Kind::kLoad || inst.kind == loop::Kind::kStore) {
      lane_by_lane |= inst.strides[kernel_.vector_dim] == loop::Stride::kParam;
      for (int index : inst.indirect) lane_by_lane |= Varies(index);
    }
  }
  const int native = target_.register_bytes / widest;
  if (lane_by_lane) return native;
  return compute <= 6 ? 4 * native : 2 * native;
}

void Emitter::Emit() {
  auto& context = module_.getContext();
  llvm::Type* ptr = llvm::PointerType::get(context, 0);
  llvm::Type* i64 = b_.getInt64Ty();
  auto* type = llvm::FunctionType::get(b_.getVoidTy(), {ptr, ptr, ptr, i64, i64, ptr}, false);
  function_ =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, "neuron_kernel", module_);
  function_->addFnAttr(llvm::Attribute::NoUnwind);
  const std::string bits = std::to_string(target_.register_bytes * 8);
  function_->addFnAttr("prefer-vector-width", bits);
  function_->addFnAttr("min-legal-vector-width", bits);
  b_.SetInsertPoint(llvm::BasicBlock::Create(context, "entry", function_));
  cache_.assign(kernel_.insts.size(), nullptr);
  index_.assign(kernel_.reduced.size(), nullptr);
  LoadArguments();
  EmitReady(0, 0);
  EmitItems();
  b_.CreateRetVoid();
}

void Emitter::LoadArguments() {
  llvm::Type* ptr = llvm::PointerType::get(module_.getContext(), 0);
  Value* params = function_->getArg(1);
  int64_t next = 0;
  const auto param = [&] {
    return b_.CreateLoad(b_.getInt64Ty(), b_.CreateConstGEP1_64(b_.getInt64Ty(), params, next++));
  };
  for (size_t d = 0; d < kernel_.reduced.size(); ++d) sizes_.push_back(param());
  chunk_ = param();
  chunks_ = param();
  params_.resize(kernel_.insts.size());
  for (size_t i = 0; i < kernel_.insts.size(); ++i) {
    for (int n = loop::NumParams(kernel_.insts[i]); n > 0; --n) params_[i].push_back(param());
  }
  for (int k = 0; k < kernel_.operands; ++k) {
    bases_.push_back(b_.CreateLoad(ptr, b_.CreateConstGEP1_64(ptr, function_->getArg(0), k)));
  }
  LocateKept();
}

// One region of loop::KeptElements after the other.
void Emitter::LocateKept() {
  kept_.assign(kernel_.insts.size(), nullptr);
  Value *next = nullptr, *bytes = nullptr;
  for (size_t i = 0; i < kernel_.insts.size(); ++i) {
    if (!kernel_.insts[i].keep) continue;
    if (next == nullptr) {
      llvm::Type* ptr = llvm::PointerType::get(module_.getContext(), 0);
      next = b_.CreateLoad(ptr, b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(5),
                                                      offsetof(host::KernelContext, kept)));
      Value* row = I64(kernel_.reduced[kernel_.vector_dim] ? 1 : loop::kMaxLanes);
      for (size_t d = 0; d < kernel_.reduced.size(); ++d) {
        if (kernel_.reduced[d]) row = b_.CreateMul(row, sizes_[d]);
      }
      row = b_.CreateAnd(b_.CreateAdd(row, I64(63)), I64(-64));
      bytes = b_.CreateMul(b_.CreateAdd(row, I64(loop::KeptElements(0))), I64(8));
    }
    kept_[i] = next;
    next = b_.CreateGEP(b_.getInt8Ty(), next, bytes);
  }
}

void Emitter::EmitItems() {
  Loop(function_->getArg(3), function_->getArg(4), 1, {}, [&](Value* item, const Values&) {
    const Values saved = cache_;
    EmitItem(item);
    cache_ = saved;
    return Values{};
  });
}

void Emitter::EmitItem(Value* item) {
  const int v = kernel_.vector_dim;
  const bool vector_is_parallel = !kernel_.reduced[v];
  Value* row = item;
  Value* chunk_index = nullptr;
  if (vector_is_parallel) {
    row = b_.CreateUDiv(item, chunks_);
    chunk_index = b_.CreateURem(item, chunks_);
  }
  uint32_t fixed = 0;
  int outermost = -1;
  for (int d = 0; d < static_cast<int>(kernel_.reduced.size()); ++d) {
    if (!kernel_.reduced[d] && d != v && outermost < 0) outermost = d;
  }
  for (int d = static_cast<int>(kernel_.reduced.size()) - 1; d >= 0; --d) {
    if (kernel_.reduced[d] || d == v) continue;
    fixed |= 1u << d;
    if (d == outermost) {
      index_[d] = row;
    } else {
      index_[d] = b_.CreateURem(row, sizes_[d]);
      row = b_.CreateUDiv(row, sizes_[d]);
    }
  }
  EmitReady(fixed, 0);
  if (vector_is_parallel) {
    EmitVectorChunk(chunk_index);
  } else {
    lanes_ = {1, nullptr};
    EmitPasses();
  }
}

void Emitter::EmitVectorChunk(Value* chunk_index) {
  const int v = kernel_.vector_dim;
  Value* begin = b_.CreateMul(chunk_index, chunk_);
  Value* limit = b_.CreateAdd(begin, chunk_);
  Value* end = b_.CreateSelect(b_.CreateICmpSLT(limit, sizes_[v]), limit, sizes_[v]);
  const auto body = [&](Lanes lanes) {
    return [this, lanes, v](Value* i, const Values&) {
      const Values saved = cache_;
      lanes_ = lanes;
      index_[v] = i;
      EmitPasses();
      cache_ = saved;
      return Values{};
    };
  };
  Value* count = b_.CreateSub(end, begin);
  Value* main = b_.CreateAdd(begin, b_.CreateAnd(count, I64(-width_)));
  Loop(begin, main, width_, {}, body({width_, nullptr}));
  if (target_.masked_tails && width_ > 1) {
    If(b_.CreateICmpSLT(main, end), {}, [&] {
      body({width_, TailMask(main, end, width_)})(main, {});
      return Values{};
    });
  } else if (width_ > 1) {
    Loop(main, end, 1, {}, body({1, nullptr}));
  }
  lanes_ = {1, nullptr};
}

void Emitter::EmitPasses() {
  for (int stage = 0; stage <= stages_; ++stage) {
    EmitReady(~reduced_mask_, stage);
    EmitPass(stage);
  }
}

// Emits, in order, what depends only on `fixed_dims` and needs at most `stage` finished passes.
void Emitter::EmitReady(uint32_t fixed_dims, int stage) {
  for (int id = 0; id < static_cast<int>(kernel_.insts.size()); ++id) {
    const loop::Inst& inst = kernel_.insts[id];
    if (inst.kind == loop::Kind::kReduce || cache_[id] != nullptr) continue;
    if ((masks_[id] & ~fixed_dims) != 0 || ready_[id] > stage) continue;
    if (inst.kind == loop::Kind::kStore) {
      // Stores belong to the innermost scope of the parallel dimensions.
      if (fixed_dims != ~reduced_mask_ || ready_[id] != stage) continue;
      EmitStore(id);
    } else {
      Get(id);
    }
  }
}

void Emitter::EmitElementStores(int stage) {
  for (int id = 0; id < static_cast<int>(kernel_.insts.size()); ++id) {
    if (kernel_.insts[id].kind == loop::Kind::kStore && ready_[id] == stage &&
        (masks_[id] & reduced_mask_)) {
      EmitStore(id);
    }
  }
}

// One pass over the reduced dimensions: the reductions that become ready after it, and the stores
// per element that can run now.
void Emitter::EmitPass(int stage) {
  const std::vector<int> reductions = ReductionsOf(stage);
  bool stores = false;
  for (size_t i = 0; i < kernel_.insts.size(); ++i) {
    stores |= kernel_.insts[i].kind == loop::Kind::kStore && ready_[i] == stage &&
              (masks_[i] & reduced_mask_);
  }
  if (reductions.empty() && !stores) return;
  pass_ = stage;
  const bool vector_reduced = kernel_.reduced[kernel_.vector_dim];
  const bool scalar_tail = vector_reduced && !target_.masked_tails && width_ > 1;
  std::vector<int> dims;
  for (int d = 0; d < static_cast<int>(kernel_.reduced.size()); ++d) {
    if (kernel_.reduced[d] && d != kernel_.vector_dim) dims.push_back(d);
  }
  const int acc_width = vector_reduced ? width_ : lanes_.width;
  Values carried;
  for (int id : reductions) {
    for (Value* value : Identity(kernel_.insts[id], acc_width)) carried.push_back(value);
  }
  if (scalar_tail) {
    for (int id : reductions) {
      for (Value* value : Identity(kernel_.insts[id], 1)) carried.push_back(value);
    }
  }
  const Values saved = cache_;
  const Values result = EmitReducedNest(0, dims, stage, carried);
  cache_ = saved;
  size_t at = 0;
  size_t tail_at = result.size() / 2;
  for (int id : reductions) {
    const loop::Inst& inst = kernel_.insts[id];
    const int n = AccumulatorsOf(inst);
    Values acc(result.begin() + at, result.begin() + at + n);
    if (vector_reduced) acc = Horizontal(inst, acc, width_);
    if (scalar_tail) {
      acc = Combine(inst, acc, Values(result.begin() + tail_at, result.begin() + tail_at + n));
    }
    cache_[id] = acc.back();  // the index of an argmax, the value otherwise
    at += n;
    tail_at += n;
  }
}

Emitter::Values Emitter::EmitReducedNest(size_t depth, const std::vector<int>& dims, int stage,
                                         Values carried) {
  if (depth < dims.size()) {
    return Loop(I64(0), sizes_[dims[depth]], 1, carried, [&](Value* i, const Values& values) {
      const Values saved = cache_;
      index_[dims[depth]] = i;
      Values out = EmitReducedNest(depth + 1, dims, stage, values);
      cache_ = saved;
      return out;
    });
  }
  if (kernel_.reduced[kernel_.vector_dim]) return EmitReducedVectorLoop(stage, carried);
  Values out;
  size_t at = 0;
  for (int id : ReductionsOf(stage)) {
    const loop::Inst& inst = kernel_.insts[id];
    const int n = AccumulatorsOf(inst);
    for (Value* value : Accumulate(inst, Values(carried.begin() + at, carried.begin() + at + n))) {
      out.push_back(value);
    }
    at += n;
  }
  EmitElementStores(stage);
  return out;
}

Emitter::Values Emitter::EmitReducedVectorLoop(int stage, Values carried) {
  const int v = kernel_.vector_dim;
  const bool scalar_tail = !target_.masked_tails && width_ > 1;
  const size_t half = scalar_tail ? carried.size() / 2 : carried.size();
  const auto body = [&](Lanes lanes) {
    return [this, lanes, v, stage](Value* i, const Values& values) {
      const Values saved = cache_;
      const Lanes outer = lanes_;
      lanes_ = lanes;
      index_[v] = i;
      Values out;
      size_t at = 0;
      for (int id : ReductionsOf(stage)) {
        const loop::Inst& inst = kernel_.insts[id];
        const int n = AccumulatorsOf(inst);
        for (Value* value :
             Accumulate(inst, Values(values.begin() + at, values.begin() + at + n))) {
          out.push_back(value);
        }
        at += n;
      }
      EmitElementStores(stage);
      lanes_ = outer;
      cache_ = saved;
      return out;
    };
  };
  Value* main = b_.CreateAnd(sizes_[v], I64(-width_));
  Values out = Loop(I64(0), main, width_, Values(carried.begin(), carried.begin() + half),
                    body({width_, nullptr}));
  if (scalar_tail) {
    const Values tail =
        Loop(main, sizes_[v], 1, Values(carried.begin() + half, carried.end()), body({1, nullptr}));
    out.insert(out.end(), tail.begin(), tail.end());
  } else if (width_ > 1) {
    out = If(b_.CreateICmpSLT(main, sizes_[v]), out,
             [&] { return body({width_, TailMask(main, sizes_[v], width_)})(main, out); });
  }
  return out;
}

Emitter::Values Emitter::Loop(Value* begin, Value* end, int64_t step, Values carried,
                              const std::function<Values(Value*, const Values&)>& body) {
  auto& context = module_.getContext();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* header = llvm::BasicBlock::Create(context, "loop", function_);
  auto* inside = llvm::BasicBlock::Create(context, "body", function_);
  auto* after = llvm::BasicBlock::Create(context, "after", function_);
  b_.CreateBr(header);
  b_.SetInsertPoint(header);
  llvm::PHINode* i = b_.CreatePHI(b_.getInt64Ty(), 2);
  i->addIncoming(begin, before);
  Values phis;
  for (Value* value : carried) {
    llvm::PHINode* phi = b_.CreatePHI(value->getType(), 2);
    phi->addIncoming(value, before);
    phis.push_back(phi);
  }
  b_.CreateCondBr(b_.CreateICmpSLT(i, end), inside, after);
  b_.SetInsertPoint(inside);
  const Values next = body(i, phis);
  i->addIncoming(b_.CreateAdd(i, I64(step), "", false, true), b_.GetInsertBlock());
  for (size_t k = 0; k < phis.size(); ++k) {
    llvm::cast<llvm::PHINode>(phis[k])->addIncoming(next[k], b_.GetInsertBlock());
  }
  b_.CreateBr(header);
  b_.SetInsertPoint(after);
  return phis;
}

Emitter::Values Emitter::If(Value* condition, Values otherwise,
                            const std::function<Values()>& then) {
  auto& context = module_.getContext();
  llvm::BasicBlock* before = b_.GetInsertBlock();
  auto* inside = llvm::BasicBlock::Create(context, "then", function_);
  auto* after = llvm::BasicBlock::Create(context, "join", function_);
  b_.CreateCondBr(condition, inside, after);
  b_.SetInsertPoint(inside);
  const Values values = then();
  llvm::BasicBlock* last = b_.GetInsertBlock();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
  Values out;
  for (size_t k = 0; k < values.size(); ++k) {
    llvm::PHINode* phi = b_.CreatePHI(values[k]->getType(), 2);
    phi->addIncoming(otherwise[k], before);
    phi->addIncoming(values[k], last);
    out.push_back(phi);
  }
  return out;
}

Value* Emitter::TailMask(Value* index, Value* end, int width) {
  Value* left =
      b_.CreateVectorSplat(width, b_.CreateTrunc(b_.CreateSub(end, index), b_.getInt32Ty()));
  llvm::SmallVector<llvm::Constant*, 64> lanes;
  for (int k = 0; k < width; ++k) lanes.push_back(b_.getInt32(k));
  return b_.CreateICmpSLT(llvm::ConstantVector::get(lanes), left);
}

llvm::Type* Emitter::Widened(llvm::Type* scalar, int width) {
  return width == 1 ? scalar : llvm::FixedVectorType::get(scalar, width);
}

Value* Emitter::Splat(Value* value, int width) {
  if (width == 1 || value->getType()->isVectorTy()) return value;
  return b_.CreateVectorSplat(width, value);
}

Value* Emitter::LaneOffsets(int width) {
  llvm::SmallVector<llvm::Constant*, 64> lanes;
  for (int k = 0; k < width; ++k) lanes.push_back(b_.getInt64(k));
  return llvm::ConstantVector::get(lanes);
}

llvm::Type* Emitter::LaneType(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return b_.getInt1Ty();
    case DType::kF16:
      return b_.getHalfTy();
    case DType::kF32:
      return b_.getFloatTy();
    case DType::kF64:
      return b_.getDoubleTy();
    default:
      return b_.getIntNTy(
          static_cast<unsigned>(8 * ByteSize(dtype)));  // bf16, complex: bits that are moved
  }
}

llvm::Type* Emitter::MemoryType(DType dtype) {
  return dtype == DType::kBool ? b_.getInt8Ty() : LaneType(dtype);
}

}  // namespace neuron::codegen
