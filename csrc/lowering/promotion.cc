#include "lowering/promotion.h"

namespace neuron::lowering {
namespace {

int Kind(DType t) { return t == DType::kBool ? 0 : IsIntegral(t) ? 1 : IsFloat(t) ? 2 : 3; }

}  // namespace

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (Kind(a) < Kind(b)) std::swap(a, b);
  if (Kind(a) == 3) {
    if (a == DType::kC128 || b == DType::kC128 || b == DType::kF64) return DType::kC128;
    return DType::kC64;
  }
  if (Kind(a) == 2) {
    if (Kind(b) < 2) return a;
    if (a == DType::kF64 || b == DType::kF64) return DType::kF64;
    return DType::kF32;  // two different ones of f16, bf16, f32
  }
  if (Kind(b) == 0) return a;
  if (IsSigned(a) == IsSigned(b)) return ByteSize(a) >= ByteSize(b) ? a : b;
  const DType is_signed = IsSigned(a) ? a : b;
  const DType is_unsigned = IsSigned(a) ? b : a;
  if (ByteSize(is_signed) > ByteSize(is_unsigned)) return is_signed;
  switch (ByteSize(is_unsigned)) {
    case 1:
      return DType::kI16;
    case 2:
      return DType::kI32;
    default:
      return DType::kI64;
  }
}

ResultType& ResultType::Add(const TensorArg& tensor) {
  if (tensor.value == nullptr) return *this;
  DType dtype = tensor.value->type.dtype;
  if (tensor.wrapped_number) {
    if (IsFloat(dtype)) dtype = default_float_;
    if (IsComplex(dtype)) dtype = default_float_ == DType::kF64 ? DType::kC128 : DType::kC64;
    number_.Add(dtype);
  } else {
    (tensor.value->type.dims.empty() ? zero_dim_ : dims_).Add(dtype);
  }
  return *this;
}

ResultType& ResultType::Add(const ScalarArg& scalar) {
  number_.Add(IsFloat(scalar.dtype) ? default_float_ : scalar.dtype);
  return *this;
}

DType ResultType::Get() const {
  DType out = DType::kBool;
  bool used = false;
  for (const Slot& slot : {dims_, zero_dim_, number_}) {
    if (!slot.used) continue;
    // A lower slot counts only with a higher kind.
    if (!used) {
      out = slot.dtype;
    } else if (Kind(slot.dtype) > Kind(out)) {
      out = Promote(out, slot.dtype);
    }
    used = true;
  }
  return out;
}

Op* ToCompute(Context& c, Op* x, DType common) {
  if (!x->type.dims.empty()) x = c.b.Convert(x, common);
  return c.b.Convert(x, ComputeType(common));
}

}  // namespace neuron::lowering
