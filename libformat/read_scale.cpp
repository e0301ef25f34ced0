#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/format/weights.h"

#include "scale_order.h"
#include "scale_values.h"

namespace trash_panda::format {

namespace {

std::uint64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

/// Reads canonical elements in their stored dtype.
///
/// @param first   First of them.
/// @param target  Whole elements.
Result<void> read_stored_elements(const Checkpoint& checkpoint, const WeightScale& scale,
                                  std::uint64_t first, std::span<std::byte> target) {
  const TensorRecord& stored = checkpoint.tensors()[scale.tensor_index];
  const std::uint64_t width_bytes = dtype_bits(stored.dtype) / 8;
  if (scale.transform == ScaleTransform::kNone) {
    return checkpoint.read_tensor_part(scale.tensor_index, first * width_bytes, target);
  }
  const std::uint64_t end = first + target.size() / width_bytes;
  const ScaleOrder order(stored, scale);
  std::vector<std::byte> bytes;
  for (const ScaleRead& read : order.reads(first, end)) {
    bytes.resize((read.stored_end - read.stored_begin) * width_bytes);
    TP_RETURN_IF_ERROR(
        checkpoint.read_tensor_part(scale.tensor_index, read.stored_begin * width_bytes, bytes));
    for (std::uint64_t row = read.row_begin; row < read.row_end; ++row) {
      const std::uint64_t row_first = row * order.columns();
      const std::uint64_t run_end = std::min(row_first + read.column_end, end);
      std::uint64_t element = std::max(row_first + read.column_begin, first);
      while (element < run_end) {
        const std::uint64_t column = element - row_first;
        const std::uint64_t count = std::min(order.neighbours(column), run_end - element);
        const std::uint64_t from = order.stored_index(row, column) - read.stored_begin;
        std::memcpy(target.data() + (element - first) * width_bytes,
                    bytes.data() + from * width_bytes, count * width_bytes);
        element += count;
      }
    }
  }
  return {};
}

}  // namespace

std::uint64_t scale_size_bytes(const WeightScale& scale) {
  return element_count(scale.shape) * (dtype_bits(scale.dtype) / 8);
}

Result<void> read_scale_bytes(const Checkpoint& checkpoint, const WeightScale& scale,
                              std::uint64_t offset_bytes, std::span<std::byte> target) {
  if (scale.dtype == Dtype::kF8E8M0) {
    return read_stored_elements(checkpoint, scale, offset_bytes, target);  // A byte each.
  }
  const std::uint64_t end_bytes = offset_bytes + target.size();
  const std::uint64_t first = offset_bytes / sizeof(float);
  std::vector<float> values((end_bytes + sizeof(float) - 1) / sizeof(float) - first);
  TP_RETURN_IF_ERROR(read_scale_part(checkpoint, scale, first, values));
  std::memcpy(target.data(), std::as_bytes(std::span(values)).data() + offset_bytes % sizeof(float),
              target.size());
  return {};
}

Result<void> read_scale_part(const Checkpoint& checkpoint, const WeightScale& scale,
                             std::uint64_t first_element, std::span<float> target) {
  TP_ASSERT(first_element + target.size() <= element_count(scale.shape));
  const Dtype stored_dtype = checkpoint.tensors()[scale.tensor_index].dtype;
  std::vector<std::byte> stored(target.size() * (dtype_bits(stored_dtype) / 8));
  TP_RETURN_IF_ERROR(read_stored_elements(checkpoint, scale, first_element, stored));
  decode_scale(stored_dtype, stored, target);
  return {};
}

Result<std::vector<float>> read_scale(const Checkpoint& checkpoint, const WeightScale& scale) {
  std::vector<float> values(element_count(scale.shape));
  TP_RETURN_IF_ERROR(read_scale_part(checkpoint, scale, 0, values));
  return values;
}

}  // namespace trash_panda::format
