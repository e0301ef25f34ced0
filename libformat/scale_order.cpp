#include "scale_order.h"

#include <algorithm>

#include "trash_panda/base/error.h"

#include "scale_swizzle.h"

namespace trash_panda::format {

ScaleOrder::ScaleOrder(const TensorRecord& stored, const WeightScale& scale)
    : is_swizzled_(scale.transform == ScaleTransform::kSwizzled),
      rows_(scale.shape[scale.shape.size() - 2]),
      columns_(scale.shape.back()),
      strip_rows_(is_swizzled_ ? kSwizzleTileRows : 1) {
  TP_ASSERT(is_swizzled_ || scale.transform == ScaleTransform::kCrop);
  const std::size_t rank = stored.shape.size();
  // ModelOpt keeps a dimension of 1 after each of the two.
  const bool is_interleaved = rank == scale.shape.size() + 2;
  stored_rows_ = stored.shape[rank - (is_interleaved ? 4 : 2)];
  stored_columns_ = stored.shape[rank - (is_interleaved ? 2 : 1)];
}

std::uint64_t ScaleOrder::stored_index(std::uint64_t row, std::uint64_t column) const {
  return is_swizzled_ ? swizzled_index(row, column, stored_columns_)
                      : (row / rows_ * stored_rows_ + row % rows_) * stored_columns_ + column;
}

std::uint64_t ScaleOrder::neighbours(std::uint64_t column) const {
  const std::uint64_t rest = columns_ - column;
  return is_swizzled_ ? std::min(rest, kSwizzleTileColumns - column % kSwizzleTileColumns) : rest;
}

std::vector<ScaleRead> ScaleOrder::reads(std::uint64_t first, std::uint64_t end) const {
  std::vector<ScaleRead> reads;
  if (first == end) {
    return reads;
  }
  const std::uint64_t row_end = (end - 1) / columns_ + 1;
  const std::uint64_t strip_size = strip_rows_ * stored_columns_;
  const std::uint64_t band_rows =
      std::max<std::uint64_t>(kScaleReadElementsMax / strip_size, 1) * strip_rows_;
  const std::uint64_t panel_columns =
      strip_size <= kScaleReadElementsMax ? columns_ : kScaleReadElementsMax / strip_rows_;
  for (std::uint64_t row = first / columns_; row < row_end;) {
    // Neither beyond the strips that fit, nor over the padding between two grids.
    const std::uint64_t band_end =
        std::min({row - row % strip_rows_ + band_rows, (row / rows_ + 1) * rows_, row_end});
    const bool is_one_row = band_end == row + 1;
    const std::uint64_t row_first = row * columns_;
    std::uint64_t column = is_one_row ? std::max(first, row_first) - row_first : 0;
    const std::uint64_t column_end = is_one_row ? std::min(end - row_first, columns_) : columns_;
    for (; column < column_end; column += panel_columns) {
      reads.push_back(read_of(row, band_end, column, std::min(column + panel_columns, column_end)));
    }
    row = band_end;
  }
  return reads;
}

ScaleRead ScaleOrder::read_of(std::uint64_t row_begin, std::uint64_t row_end,
                              std::uint64_t column_begin, std::uint64_t column_end) const {
  ScaleRead read = {.stored_begin = stored_index(row_begin, column_begin),
                    .stored_end = stored_index(row_end - 1, column_end - 1) + 1,
                    .row_begin = row_begin,
                    .row_end = row_end,
                    .column_begin = column_begin,
                    .column_end = column_end};
  if (is_swizzled_) {
    // Whole tiles: the first row and the last need not be where their run begins and ends.
    read.stored_begin -= read.stored_begin % kSwizzleTileSize;
    read.stored_end = ((read.stored_end - 1) / kSwizzleTileSize + 1) * kSwizzleTileSize;
  }
  return read;
}

}  // namespace trash_panda::format
