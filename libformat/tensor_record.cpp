#include "trash_panda/format/tensor_record.h"

#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trash_panda::format {

namespace {

/// Most dimensions that a message repeats: all of those that any library computes with.
constexpr std::size_t kShownDimensionsMax = 64;

}  // namespace

std::string to_string(const Shape& shape) {
  if (shape.size() <= kShownDimensionsMax) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
  }
  return fmt::format("[{}, …] ({} dimensions)",
                     fmt::join(std::span(shape).first(kShownDimensionsMax), ", "), shape.size());
}

std::string_view type_name(const TensorRecord& tensor) {
  return tensor.ggml_type != nullptr ? tensor.ggml_type->name : dtype_name(tensor.dtype);
}

std::uint64_t element_count(const TensorRecord& tensor) {
  std::uint64_t count = 1;  // Readers have refused what overflows.
  for (const std::uint64_t dimension : tensor.shape) {
    count *= dimension;
  }
  return count;
}

}  // namespace trash_panda::format
