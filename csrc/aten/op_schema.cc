#include "aten/op_schema.h"

#include <ATen/core/jit_type.h>

#include <algorithm>

namespace neuron::aten {
namespace {

ArgKind KindOf(const c10::Argument& arg) {
  c10::TypePtr type = arg.real_type();
  if (type->kind() == c10::TypeKind::OptionalType)
    type = type->expectRef<c10::OptionalType>().getElementType();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return ArgKind::kTensor;
    case c10::TypeKind::NumberType:
    case c10::TypeKind::FloatType:
      return ArgKind::kNumber;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ArgKind::kInt;
    case c10::TypeKind::BoolType:
      return ArgKind::kBool;
    case c10::TypeKind::StringType:
      return ArgKind::kString;
    case c10::TypeKind::ScalarTypeType:
      return ArgKind::kDtype;
    case c10::TypeKind::DeviceObjType:
      return ArgKind::kDevice;
    case c10::TypeKind::GeneratorType:
      return ArgKind::kGenerator;
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      return ArgKind::kIgnored;
    case c10::TypeKind::ListType: {
      c10::TypePtr element = type->expectRef<c10::ListType>().getElementType();
      if (element->kind() == c10::TypeKind::OptionalType) {
        element = element->expectRef<c10::OptionalType>().getElementType();
      }
      if (element->kind() == c10::TypeKind::TensorType) return ArgKind::kTensorList;
      if (element->kind() == c10::TypeKind::IntType ||
          element->kind() == c10::TypeKind::SymIntType ||
          element->kind() == c10::TypeKind::BoolType) {
        return ArgKind::kIntList;
      }
      if (element->kind() == c10::TypeKind::FloatType ||
          element->kind() == c10::TypeKind::BoolType) {
        return ArgKind::kNumberList;
      }
      break;
    }
    default:
      break;
  }
  NEURON_THROW(kUnsupported, "argument '", arg.name(), "' of type ", arg.type()->str());
}

}  // namespace

OpSchema OpSchema::Analyze(const c10::FunctionSchema& schema, const lowering::Entry& entry,
                           bool library) {
  OpSchema out;
  out.name = schema.name();
  if (!schema.overload_name().empty()) out.name += "." + schema.overload_name();
  for (const c10::Argument& arg : schema.arguments()) {
    ArgSpec spec;
    spec.name = arg.name();
    spec.kind = KindOf(arg);
    spec.written = arg.alias_info() != nullptr && arg.alias_info()->isWrite();
    spec.output_only = spec.written && arg.kwarg_only();
    // Without code nothing is saved by leaving numbers open, and meta kernels check their values.
    spec.is_static = entry.lower == nullptr ||
                     std::find(entry.static_args.begin(), entry.static_args.end(), arg.name()) !=
                         entry.static_args.end();
    if (spec.written && spec.kind != ArgKind::kTensor && !library) {
      NEURON_THROW(kUnsupported, "written argument '", arg.name(), "' of type ", arg.type()->str());
    }
    out.writes |= spec.written;
    out.args.push_back(std::move(spec));
  }
  for (const c10::Argument& ret : schema.returns()) {
    if (ret.type()->kind() != c10::TypeKind::TensorType && !library) {
      NEURON_THROW(kUnsupported, "a return of type ", ret.type()->str());
    }
    int source = -1;
    for (size_t i = 0; ret.alias_info() != nullptr && i < out.args.size(); ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && *alias == *ret.alias_info()) source = static_cast<int>(i);
    }
    out.returned_args.push_back(source);
  }
  return out;
}

}  // namespace neuron::aten
