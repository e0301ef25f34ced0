#pragma once

#include <cstdint>

#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {

/// Shape of the stored tensor that holds a grid of scales [rows, columns] in the layout of cuBLAS's
/// block-scaled products: padded to whole tiles of 128 x 4.
Shape swizzled_shape(const Shape& grid);

/// Rows that share a row of tiles: their elements follow each other in a swizzled grid.
inline constexpr std::uint64_t kSwizzleTileRows = 128;
inline constexpr std::uint64_t kSwizzleTileColumns = 4;
/// Elements of a tile, which are neighbours.
inline constexpr std::uint64_t kSwizzleTileSize = kSwizzleTileRows * kSwizzleTileColumns;

/// Where element (row, column) of a grid lies in the tensor of swizzled_shape(grid).
///
/// Tiles of 128 x 4 follow each other row by row; within one, element (row, column) is at
/// (row % 32) * 16 + (row / 32) * 4 + column.
///
/// @param stored_columns  Of the stored tensor: whole tiles.
/// @see cuBLAS, "1D Block Scaling Factors Layout"; comfy-kitchen float_utils.py to_blocked
[[nodiscard]] std::uint64_t swizzled_index(std::uint64_t row, std::uint64_t column,
                                           std::uint64_t stored_columns);

}  // namespace trash_panda::format
