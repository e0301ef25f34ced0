#include "scale_swizzle.h"

#include <cstddef>
#include <cstdint>

namespace trash_panda::format {

namespace {

constexpr std::uint64_t kTileRows = 128;
constexpr std::uint64_t kTileColumns = 4;
constexpr std::uint64_t kTileSize = kTileRows * kTileColumns;
/// Rows whose scales lie 16 elements apart; the four quarters of a tile are interleaved.
constexpr std::uint64_t kQuarterRows = 32;

std::uint64_t pad_to(std::uint64_t value, std::uint64_t multiple) {
  return (value / multiple + (value % multiple != 0 ? 1 : 0)) * multiple;
}

}  // namespace

Shape swizzled_shape(const Shape& grid) {
  return {pad_to(grid[0], kTileRows), pad_to(grid[1], kTileColumns)};
}

std::vector<float> unswizzle(const std::vector<float>& stored, const Shape& stored_shape,
                             const Shape& grid) {
  const std::uint64_t tiles_per_row = stored_shape[1] / kTileColumns;
  std::vector<float> linear;
  linear.reserve(grid[0] * grid[1]);
  for (std::uint64_t row = 0; row < grid[0]; ++row) {
    const std::uint64_t in_tile_row = row % kTileRows;
    const std::uint64_t in_tile =
        in_tile_row % kQuarterRows * 16 + in_tile_row / kQuarterRows * kTileColumns;
    for (std::uint64_t column = 0; column < grid[1]; ++column) {
      const std::uint64_t tile = row / kTileRows * tiles_per_row + column / kTileColumns;
      linear.push_back(stored[tile * kTileSize + in_tile + column % kTileColumns]);
    }
  }
  return linear;
}

}  // namespace trash_panda::format
