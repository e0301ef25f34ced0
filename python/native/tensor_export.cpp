#include "tensor_export.h"

#include <vector>

#include "trash_panda/runtime/array_shape.h"

#include "errors.h"

namespace nb = nanobind;

namespace trash_panda::python {
namespace {

using format::Dtype;

// DLPack's type codes. @see dlpack.h 1.1, DLDataTypeCode
enum class TypeCode : std::uint8_t {
  kInt = 0,
  kUint = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E4m3fn = 10,
  kFloat8E4m3fnuz = 11,
  kFloat8E5m2 = 12,
  kFloat8E5m2fnuz = 13,
  kFloat8E8m0fnu = 14,
  kFloat4E2m1fn = 17,
};

TypeCode type_code(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBool:
      return TypeCode::kBool;
    case Dtype::kI8:
    case Dtype::kI16:
    case Dtype::kI32:
    case Dtype::kI64:
      return TypeCode::kInt;
    case Dtype::kU8:
    case Dtype::kU16:
    case Dtype::kU32:
    case Dtype::kU64:
    case Dtype::kF6E2M3:
    case Dtype::kF6E3M2:
      return TypeCode::kUint;
    case Dtype::kF16:
    case Dtype::kF32:
    case Dtype::kF64:
      return TypeCode::kFloat;
    case Dtype::kBf16:
      return TypeCode::kBfloat;
    case Dtype::kC64:
      return TypeCode::kComplex;
    case Dtype::kF8E4M3:
      return TypeCode::kFloat8E4m3fn;
    case Dtype::kF8E4M3Fnuz:
      return TypeCode::kFloat8E4m3fnuz;
    case Dtype::kF8E5M2:
      return TypeCode::kFloat8E5m2;
    case Dtype::kF8E5M2Fnuz:
      return TypeCode::kFloat8E5m2fnuz;
    case Dtype::kF8E8M0:
      return TypeCode::kFloat8E8m0fnu;
    case Dtype::kF4:
      return TypeCode::kFloat4E2m1fn;
    case Dtype::kGgmlBlock:
      break;  // In no pack; dtype_bits() stops it.
  }
  return TypeCode::kUint;
}

/// Sub-byte types are packed: an element of F4 is two values. 6-bit floats have no type that holds
/// packed values; they cross as bytes.
nb::dlpack::dtype dlpack_type(Dtype dtype) {
  const unsigned bits = format::dtype_bits(dtype);
  return {static_cast<std::uint8_t>(type_code(dtype)),
          static_cast<std::uint8_t>(bits == 6 ? 8 : bits),
          static_cast<std::uint16_t>(bits == 4 ? 2 : 1)};
}

}  // namespace

nb::object export_tensor(const runtime::TensorView& tensor, DlpackDevice device, nb::handle owner) {
  const format::Shape dimensions = unwrap(runtime::array_shape(tensor));
  const std::vector<std::size_t> shape(dimensions.begin(), dimensions.end());
  return nb::cast(nb::ndarray<>(tensor.data, shape.size(), shape.data(), owner,
                                /*strides=*/nullptr, dlpack_type(tensor.dtype), device.type,
                                device.ordinal));
}

}  // namespace trash_panda::python
