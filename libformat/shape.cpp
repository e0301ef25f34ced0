#include "trash_panda/format/shape.h"

#include <limits>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

namespace {

/// Most dimensions that a message repeats: all of those that any library computes with.
constexpr std::size_t kShownDimensionsMax = 64;

}  // namespace

void Shape::resize(std::size_t count, value_type added) {
  if (count > capacity_) {
    grow(count);
  }
  if (count > size_) {
    std::fill(end(), begin() + count, added);
  }
  size_ = static_cast<std::uint32_t>(count);
}

void Shape::append(const_iterator begin, const_iterator end) {
  const std::size_t first_new = size_;
  resize(first_new + static_cast<std::size_t>(end - begin));
  std::copy(begin, end, data() + first_new);
}

void Shape::grow(std::size_t count) {
  TP_ASSERT(count <= std::numeric_limits<std::uint32_t>::max());  // No file that is read has more.
  const std::size_t capacity = std::max<std::size_t>(count, std::size_t{2} * capacity_);
  TP_ASSERT(capacity <= std::numeric_limits<std::uint32_t>::max());
  value_type* heap = std::allocator<value_type>().allocate(capacity);
  std::copy_n(data(), size_, heap);
  release();
  heap_ = heap;
  capacity_ = static_cast<std::uint32_t>(capacity);
}

std::string to_string(const Shape& shape) {
  if (shape.size() <= kShownDimensionsMax) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
  }
  return fmt::format("[{}, …] ({} dimensions)",
                     fmt::join(std::span(shape).first(kShownDimensionsMax), ", "), shape.size());
}

}  // namespace trash_panda::format
