#include "trash_panda/runtime/array_shape.h"

#include <fmt/format.h>

#include "trash_panda/base/printable.h"

namespace trash_panda::runtime {

Result<format::Shape> array_shape(const TensorView& tensor) {
  format::Shape shape = *tensor.shape;
  const unsigned bits = format::dtype_bits(tensor.dtype);
  if (bits == 6) {
    return format::Shape{tensor.size_bytes};
  }
  if (bits == 4) {
    if (shape.empty() || shape.back() % 2 != 0) {
      return std::unexpected(
          Error(ErrorCode::kUnsupported,
                fmt::format("tensor {} of packed 4-bit floats has shape {}: its last dimension is "
                            "odd, which no array of whole bytes can express",
                            printable(tensor.name), format::to_string(shape))));
    }
    shape.back() /= 2;
  }
  return shape;
}

}  // namespace trash_panda::runtime
