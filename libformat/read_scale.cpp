#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <span>

#include "trash_panda/base/error.h"
#include "trash_panda/format/weights.h"

#include "scale_swizzle.h"
#include "scale_values.h"

namespace trash_panda::format {

namespace {

std::uint64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
}

/// Stored elements that are read and decoded at a time: a few MB, however large the scale is.
constexpr std::uint64_t kStepElements = 262'144;

/// A grid's last two dimensions, whatever lies between them and before.
struct GridSize {
  std::uint64_t rows;
  std::uint64_t columns;
};

/// The stored grid's size; ModelOpt keeps a dimension of 1 after each of the two.
GridSize stored_grid(const Shape& stored, const Shape& canonical) {
  const std::size_t rank = stored.size();
  return rank == canonical.size() + 2 ? GridSize{stored[rank - 4], stored[rank - 2]}
                                      : GridSize{stored[rank - 2], stored[rank - 1]};
}

/// A run of canonical elements, and the run of stored ones that they are among.
struct ScaleStep {
  std::uint64_t count;
  std::uint64_t stored_begin;
  std::uint64_t stored_end;
};

/// Where the canonical elements of a scale lie in the stored tensor.
class StoredOrder {
 public:
  StoredOrder(const TensorRecord& stored, const WeightScale& scale) : transform_(scale.transform) {
    if (is_grid()) {
      const std::size_t rank = scale.shape.size();
      grid_ = {.rows = scale.shape[rank - 2], .columns = scale.shape[rank - 1]};
      stored_ = stored_grid(stored.shape, scale.shape);
    }
  }

  [[nodiscard]] std::uint64_t stored_index(std::uint64_t element) const {
    if (!is_grid()) {
      return element;
    }
    const std::uint64_t row = element / grid_.columns;
    const std::uint64_t column = element % grid_.columns;
    return transform_ == ScaleTransform::kSwizzled
               ? swizzled_index(row, column, stored_.columns)
               : row / grid_.rows * stored_.rows * stored_.columns +
                     row % grid_.rows * stored_.columns + column;
  }

  /// The longest run from `element` on whose stored elements are worth reading at once.
  [[nodiscard]] ScaleStep step(std::uint64_t element, std::uint64_t count) const {
    if (transform_ == ScaleTransform::kSwizzled) {
      return swizzled_step(element, count);
    }
    if (transform_ == ScaleTransform::kCrop) {
      // Padding is at most 7 elements after each: see fit_scale(). None between grids is read.
      const std::uint64_t grid_size = grid_.rows * grid_.columns;
      count = std::min(count, grid_size - element % grid_size);
      count = std::min(count, kStepElements / 8);
    }
    count = std::min(count, kStepElements);
    return {.count = count,
            .stored_begin = stored_index(element),
            .stored_end = stored_index(element + count - 1) + 1};
  }

 private:
  [[nodiscard]] bool is_grid() const {
    return transform_ == ScaleTransform::kCrop || transform_ == ScaleTransform::kSwizzled;
  }

  /// A row of tiles, in which 128 rows are interleaved; where that is too long, tiles of one row.
  [[nodiscard]] ScaleStep swizzled_step(std::uint64_t element, std::uint64_t count) const {
    const std::uint64_t row = element / grid_.columns;
    const std::uint64_t column = element % grid_.columns;
    const std::uint64_t tile_row = row / kSwizzleTileRows;
    const std::uint64_t tile_row_size = kSwizzleTileRows * stored_.columns;
    if (tile_row_size <= kStepElements) {
      return {.count = std::min(count, (tile_row + 1) * kSwizzleTileRows * grid_.columns - element),
              .stored_begin = tile_row * tile_row_size,
              .stored_end = (tile_row + 1) * tile_row_size};
    }
    count = std::min({count, grid_.columns - column, kStepElements / kSwizzleTileRows});
    return {.count = count,
            .stored_begin = stored_index(element),
            .stored_end = stored_index(element + count - 1) + 1};
  }

  ScaleTransform transform_;
  GridSize grid_ = {};
  GridSize stored_ = {};
};

}  // namespace

std::uint64_t scale_size_bytes(const WeightScale& scale) {
  return element_count(scale.shape) * sizeof(float);
}

Result<void> read_scale_part(const Checkpoint& checkpoint, const WeightScale& scale,
                             std::uint64_t first_element, std::span<float> target) {
  TP_ASSERT(first_element + target.size() <= element_count(scale.shape));
  const TensorRecord& stored = checkpoint.tensors()[scale.tensor_index];
  const std::uint64_t width_bytes = dtype_bits(stored.dtype) / 8;
  const StoredOrder order(stored, scale);
  std::vector<std::byte> bytes;
  while (!target.empty()) {
    const ScaleStep step = order.step(first_element, target.size());
    bytes.resize((step.stored_end - step.stored_begin) * width_bytes);
    TP_RETURN_IF_ERROR(
        checkpoint.read_tensor_part(scale.tensor_index, step.stored_begin * width_bytes, bytes));
    const std::vector<float> values = decode_scale(stored.dtype, bytes);
    for (std::uint64_t i = 0; i < step.count; ++i) {
      target[i] = values[order.stored_index(first_element + i) - step.stored_begin];
    }
    first_element += step.count;
    target = target.subspan(step.count);
  }
  return {};
}

Result<std::vector<float>> read_scale(const Checkpoint& checkpoint, const WeightScale& scale) {
  std::vector<float> values(element_count(scale.shape));
  TP_RETURN_IF_ERROR(read_scale_part(checkpoint, scale, 0, values));
  return values;
}

}  // namespace trash_panda::format
