// Loads, stores, indices, constants.
#include <llvm/IR/MDBuilder.h>

#include "compiler/llvm/emit.h"
#include "compiler/llvm/math.h"
#include "platform/host/kernel_abi.h"
#include "support/error.h"

namespace neuron::codegen {

using llvm::Value;
using loop::Kind;
using loop::Stride;

Value* Emitter::Get(int id) {
  if (cache_[id] == nullptr) cache_[id] = EmitInst(id);
  return cache_[id];
}

Value* Emitter::EmitInst(int id) {
  const loop::Inst& inst = kernel_.insts[id];
  if (inst.keep) return EmitKept(id);
  switch (inst.kind) {
    case Kind::kLoad:
      return EmitLoad(id);
    case Kind::kIndex:
      return EmitIndex(id);
    case Kind::kScalar:
      return EmitScalar(inst);
    case Kind::kConst:
      return EmitConst(inst);
    case Kind::kCompute:
      return EmitCompute(inst);
    case Kind::kReduce:
    case Kind::kStore:
      break;
  }
  NEURON_THROW(kInternal, "kernel ", kernel_.name, ": instruction %", id,
               " is used before its pass");
}

// The first pass computes and writes, later ones read. The vector dimension is the innermost of
// what is kept. Lanes that do not exist are written too: into the beginning of the next row, which
// is written later, or into the room after the last.
Value* Emitter::EmitKept(int id) {
  const loop::Inst& inst = kernel_.insts[id];
  const int v = kernel_.vector_dim;
  Value* at = I64(0);
  for (int d = 0; d < static_cast<int>(kernel_.reduced.size()); ++d) {
    if (kernel_.reduced[d] && d != v) at = b_.CreateAdd(b_.CreateMul(at, sizes_[d]), index_[d]);
  }
  if (kernel_.reduced[v]) {
    at = b_.CreateAdd(b_.CreateMul(at, sizes_[v]), index_[v]);
  } else {
    at = b_.CreateMul(at, I64(lanes_.width));
  }
  llvm::Type* element = LaneType(inst.dtype);
  Value* address = b_.CreateGEP(element, kept_[id], at);
  const llvm::Align align(static_cast<uint64_t>(ByteSize(inst.dtype)));
  if (passes_[id] >> pass_ & 1) {
    Value* value = Splat(EmitCompute(inst), lanes_.width);
    b_.CreateAlignedStore(value, address, align);
    return value;
  }
  return b_.CreateAlignedLoad(Widened(element, lanes_.width), address, align);
}

Value* Emitter::IndirectTerm(int id, size_t which) {
  const loop::Inst& inst = kernel_.insts[id];
  const size_t first = params_[id].size() - 2 * inst.indirect.size() + 2 * which;
  Value* stride = params_[id][first];
  Value* limit = params_[id][first + 1];
  Value* index = Get(inst.indirect[which]);
  const int width = index->getType()->isVectorTy() ? lanes_.width : 1;
  limit = Splat(limit, width);
  Value* wrapped = index;
  if (inst.wrap) {
    Value* negative = b_.CreateICmpSLT(index, llvm::Constant::getNullValue(index->getType()));
    wrapped = b_.CreateSelect(negative, b_.CreateAdd(index, limit), index);
  }
  FailIf(b_.CreateICmpUGE(wrapped, limit), index, limit, 1);
  return b_.CreateMul(wrapped, Splat(stride, width));
}

// Reports the first bad lane and leaves the kernel: what it has computed so far is not used.
void Emitter::FailIf(Value* bad, Value* index, Value* limit, int64_t code) {
  auto& context = module_.getContext();
  const bool vector = bad->getType()->isVectorTy();
  if (vector && lanes_.mask != nullptr) bad = b_.CreateAnd(bad, lanes_.mask);
  Value* any = vector ? b_.CreateOrReduce(bad) : bad;
  auto* fail = llvm::BasicBlock::Create(context, "fail", function_);
  auto* ok = llvm::BasicBlock::Create(context, "ok", function_);
  b_.CreateCondBr(any, fail, ok, llvm::MDBuilder(context).createBranchWeights(1, 1 << 20));
  b_.SetInsertPoint(fail);
  Value* lane = nullptr;
  if (vector) {
    auto* bits = b_.getIntNTy(lanes_.width);
    Value* first =
        b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, b_.CreateBitCast(bad, bits), b_.getTrue());
    lane = b_.CreateZExtOrTrunc(first, b_.getInt64Ty());
  }
  const auto pick = [&](Value* value) {
    return value->getType()->isVectorTy() ? b_.CreateExtractElement(value, lane) : value;
  };
  llvm::Type* ptr = llvm::PointerType::get(context, 0);
  Value* error = b_.CreateLoad(ptr, b_.CreateConstGEP1_64(b_.getInt8Ty(), function_->getArg(5),
                                                          offsetof(host::KernelContext, error)));
  b_.CreateStore(pick(index),
                 b_.CreateConstGEP1_64(b_.getInt8Ty(), error, offsetof(host::KernelError, value)));
  b_.CreateStore(pick(limit),
                 b_.CreateConstGEP1_64(b_.getInt8Ty(), error, offsetof(host::KernelError, limit)));
  b_.CreateStore(I64(code),
                 b_.CreateConstGEP1_64(b_.getInt8Ty(), error, offsetof(host::KernelError, code)));
  b_.CreateRetVoid();
  b_.SetInsertPoint(ok);
}

Value* Emitter::Address(int id, Value** varying, bool* contiguous) {
  const loop::Inst& inst = kernel_.insts[id];
  const int v = kernel_.vector_dim;
  *varying = nullptr;
  *contiguous = false;
  Value* offset = I64(0);
  size_t next = 0;
  Value* vector_stride = nullptr;
  for (int d = 0; d < static_cast<int>(inst.strides.size()); ++d) {
    if (inst.strides[d] == Stride::kZero) continue;
    Value* stride = inst.strides[d] == Stride::kParam ? params_[id][next++] : I64(1);
    if (d == v) {
      vector_stride = stride;
    } else {
      offset = b_.CreateAdd(offset, b_.CreateMul(index_[d], stride));
    }
  }
  if (inst.kind == Kind::kIndex) offset = b_.CreateAdd(offset, params_[id][next]);
  for (size_t k = 0; k < inst.indirect.size(); ++k) {
    Value* term = IndirectTerm(id, k);
    if (term->getType()->isVectorTy()) {
      *varying = *varying == nullptr ? term : b_.CreateAdd(*varying, term);
    } else {
      offset = b_.CreateAdd(offset, term);
    }
  }
  if (vector_stride != nullptr) {
    offset = b_.CreateAdd(offset, b_.CreateMul(index_[v], vector_stride));
    if (lanes_.width > 1) {
      if (inst.strides[v] == Stride::kOne && *varying == nullptr && inst.kind != Kind::kIndex) {
        *contiguous = true;
      } else {
        Value* lanes = b_.CreateMul(LaneOffsets(lanes_.width), Splat(vector_stride, lanes_.width));
        *varying = *varying == nullptr ? lanes : b_.CreateAdd(*varying, lanes);
      }
    }
  }
  return offset;
}

Value* Emitter::EmitLoad(int id) {
  const loop::Inst& inst = kernel_.insts[id];
  llvm::Type* memory = MemoryType(inst.dtype);
  const llvm::Align align(static_cast<uint64_t>(ByteSize(inst.dtype)));
  Value* varying;
  bool contiguous;
  Value* offset = Address(id, &varying, &contiguous);
  Value* address = b_.CreateGEP(memory, bases_[inst.slot], offset);
  if (varying != nullptr) return FromMemory(EmitGather(memory, address, varying), inst.dtype);
  if (!contiguous) return FromMemory(b_.CreateAlignedLoad(memory, address, align), inst.dtype);
  llvm::Type* type = Widened(memory, lanes_.width);
  if (lanes_.mask == nullptr)
    return FromMemory(b_.CreateAlignedLoad(type, address, align), inst.dtype);
  return FromMemory(
      b_.CreateMaskedLoad(type, address, align, lanes_.mask, llvm::Constant::getNullValue(type)),
      inst.dtype);
}

Value* Emitter::EmitGather(llvm::Type* memory, Value* base, Value* offsets) {
  const int width = lanes_.width;
  const llvm::Align align(memory->getPrimitiveSizeInBits() / 8);
  const bool native = memory->getPrimitiveSizeInBits() >= 32 && target_.register_bytes == 64;
  if (lanes_.mask != nullptr || native) {
    Value* mask =
        lanes_.mask != nullptr
            ? lanes_.mask
            : llvm::Constant::getAllOnesValue(llvm::FixedVectorType::get(b_.getInt1Ty(), width));
    llvm::Type* type = Widened(memory, width);
    return b_.CreateMaskedGather(type, b_.CreateGEP(memory, base, offsets), align, mask,
                                 llvm::Constant::getNullValue(type));
  }
  Value* out = llvm::PoisonValue::get(Widened(memory, width));
  for (int k = 0; k < width; ++k) {
    Value* address = b_.CreateGEP(memory, base, b_.CreateExtractElement(offsets, b_.getInt64(k)));
    out = b_.CreateInsertElement(out, b_.CreateAlignedLoad(memory, address, align), b_.getInt64(k));
  }
  return out;
}

void Emitter::EmitStore(int id) {
  const loop::Inst& inst = kernel_.insts[id];
  llvm::Type* memory = MemoryType(inst.dtype);
  const llvm::Align align(static_cast<uint64_t>(ByteSize(inst.dtype)));
  Value* value = ToMemory(Get(inst.operands[0]), inst.dtype);
  Value* varying;
  bool contiguous;
  Value* offset = Address(id, &varying, &contiguous);
  Value* address = b_.CreateGEP(memory, bases_[inst.slot], offset);
  if (!contiguous && varying == nullptr) {
    // One element: with several lanes in flight the last existing one would win, so the value must
    // be uniform.
    NEURON_CHECK(!value->getType()->isVectorTy(),
                 "store to one element of a value that varies over lanes");
    b_.CreateAlignedStore(value, address, align);
    return;
  }
  value = Splat(value, lanes_.width);
  if (contiguous) {
    if (lanes_.mask == nullptr) {
      b_.CreateAlignedStore(value, address, align);
    } else {
      b_.CreateMaskedStore(value, address, align, lanes_.mask);
    }
    return;
  }
  if (lanes_.mask != nullptr) {
    b_.CreateMaskedScatter(value, b_.CreateGEP(memory, address, varying), align, lanes_.mask);
    return;
  }
  for (int k = 0; k < lanes_.width; ++k) {
    Value* lane = b_.CreateGEP(memory, address, b_.CreateExtractElement(varying, b_.getInt64(k)));
    b_.CreateAlignedStore(b_.CreateExtractElement(value, b_.getInt64(k)), lane, align);
  }
}

Value* Emitter::EmitIndex(int id) {
  Value* varying;
  bool contiguous;
  Value* offset = Address(id, &varying, &contiguous);
  if (varying == nullptr) return offset;
  return b_.CreateAdd(Splat(offset, lanes_.width), varying);
}

Value* Emitter::EmitConst(const loop::Inst& inst) {
  llvm::Type* type = LaneType(inst.dtype);
  if (IsIntegral(inst.dtype))
    return llvm::ConstantInt::get(type, static_cast<uint64_t>(inst.ivalue), true, true);
  if (IsComplex(inst.dtype)) {
    NEURON_CHECK(inst.value == 0, "a complex constant other than 0");
    return llvm::Constant::getNullValue(type);
  }
  if (inst.dtype == DType::kBF16) {
    return EmitRoundToBf16(b_, llvm::ConstantFP::get(b_.getFloatTy(), inst.value));
  }
  return llvm::ConstantFP::get(type, inst.value);
}

Value* Emitter::EmitScalar(const loop::Inst& inst) {
  Value* address = b_.CreateConstGEP1_64(b_.getInt64Ty(), function_->getArg(2), inst.slot);
  if (inst.dtype == DType::kF64) return b_.CreateLoad(b_.getDoubleTy(), address);
  Value* word = b_.CreateLoad(b_.getInt64Ty(), address);
  if (inst.dtype == DType::kBool) return b_.CreateICmpNE(word, I64(0));
  NEURON_CHECK(inst.dtype == DType::kI64, "a scalar is f64, i64 or b8, not ", Name(inst.dtype));
  return word;
}

Value* Emitter::FromMemory(Value* value, DType dtype) {
  if (dtype != DType::kBool) return value;
  return b_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

Value* Emitter::ToMemory(Value* value, DType dtype) {
  if (dtype != DType::kBool) return value;
  llvm::Type* i8 = b_.getInt8Ty();
  const auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return b_.CreateZExt(value,
                       vector ? Widened(i8, static_cast<int>(vector->getNumElements())) : i8);
}

}  // namespace neuron::codegen
