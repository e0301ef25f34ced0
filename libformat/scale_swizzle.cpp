#include "scale_swizzle.h"

namespace trash_panda::format {

namespace {

/// Rows whose scales lie 16 elements apart; the four quarters of a tile are interleaved.
constexpr std::uint64_t kQuarterRows = 32;

std::uint64_t pad_to(std::uint64_t value, std::uint64_t multiple) {
  return (value / multiple + (value % multiple != 0 ? 1 : 0)) * multiple;
}

}  // namespace

Shape swizzled_shape(const Shape& grid) {
  return {pad_to(grid[0], kSwizzleTileRows), pad_to(grid[1], kSwizzleTileColumns)};
}

std::uint64_t swizzled_index(std::uint64_t row, std::uint64_t column,
                             std::uint64_t stored_columns) {
  const std::uint64_t in_tile_row = row % kSwizzleTileRows;
  const std::uint64_t tile = row / kSwizzleTileRows * (stored_columns / kSwizzleTileColumns) +
                             column / kSwizzleTileColumns;
  return tile * kSwizzleTileSize + in_tile_row % kQuarterRows * 16 +
         in_tile_row / kQuarterRows * kSwizzleTileColumns + column % kSwizzleTileColumns;
}

}  // namespace trash_panda::format
