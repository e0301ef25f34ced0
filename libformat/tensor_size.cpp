#include "tensor_size.h"

namespace trash_panda::format {

std::optional<std::uint64_t> tensor_size_bytes(Dtype dtype, const Shape& shape) {
  std::uint64_t bits = dtype_bits(dtype);
  for (const std::uint64_t dimension : shape) {
    if (__builtin_mul_overflow(bits, dimension, &bits)) {
      return std::nullopt;
    }
  }
  if (bits % 8 != 0) {
    return std::nullopt;
  }
  return bits / 8;
}

}  // namespace trash_panda::format
