#pragma once

#include <vector>

#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {

/// Shape of the stored tensor that holds a grid of scales [rows, columns] in the layout of cuBLAS's
/// block-scaled products: padded to whole tiles of 128 x 4.
Shape swizzled_shape(const Shape& grid);

/// Puts a swizzled grid into row-major order and drops its padding.
///
/// Tiles of 128 x 4 follow each other row by row; within one, element (row, column) is at
/// (row % 32) * 16 + (row / 32) * 4 + column.
///
/// @param stored  Elements of a tensor of swizzled_shape(grid), as they lie in the file.
/// @see cuBLAS, "1D Block Scaling Factors Layout"; comfy-kitchen float_utils.py to_blocked
std::vector<float> unswizzle(const std::vector<float>& stored, const Shape& stored_shape,
                             const Shape& grid);

}  // namespace trash_panda::format
