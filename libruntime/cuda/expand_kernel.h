#pragma once

// The arithmetic of one expanded element, and which scale it takes. One source for the host and
// the GPU, see number_formats.h.

#include <cstdint>

#include "cuda/number_formats.h"

namespace trash_panda::runtime::cuda {

/// Every granularity of scales as one picture: `matrix_count` row-major matrices one after the
/// other, each cut into tiles that have one scale, row-major too. A scale per tensor is a tile as
/// large as the matrix, one per row a tile of one row, one per column a tile of one column.
struct ScaleGrid {
  std::uint64_t matrix_count;
  std::uint64_t rows;
  std::uint64_t columns;
  std::uint64_t tile_rows;
  std::uint64_t tile_columns;

  [[nodiscard]] TP_HOST_DEVICE std::uint64_t grid_rows() const {
    return (rows + tile_rows - 1) / tile_rows;
  }
  [[nodiscard]] TP_HOST_DEVICE std::uint64_t grid_columns() const {
    return (columns + tile_columns - 1) / tile_columns;
  }
};

/// Index of the scale of one element, counted through all matrices.
TP_HOST_DEVICE std::uint64_t scale_index(const ScaleGrid& grid, std::uint64_t element) {
  const std::uint64_t column = element % grid.columns;
  const std::uint64_t row_in_all = element / grid.columns;
  const std::uint64_t row = row_in_all % grid.rows;
  const std::uint64_t matrix = row_in_all / grid.rows;
  const std::uint64_t grid_row = matrix * grid.grid_rows() + row / grid.tile_rows;
  return grid_row * grid.grid_columns() + column / grid.tile_columns;
}

/// The scales of a weight as they are stored: F32, or F8_E8M0 codes that are decoded on the way.
struct ScaleValues {
  const float* floats;        ///< Null: there are codes, or no scales.
  const std::uint8_t* codes;  ///< Null: there are floats, or no scales.

  [[nodiscard]] TP_HOST_DEVICE bool empty() const { return floats == nullptr && codes == nullptr; }
  [[nodiscard]] TP_HOST_DEVICE float operator[](std::uint64_t index) const {
    return codes != nullptr ? decode_e8m0(codes[index]) : floats[index];
  }
};

/// Result types of an expansion: how they are stored and rounded.
struct Bf16Target {
  using Stored = std::uint16_t;
  static TP_HOST_DEVICE Stored encode(float value) { return encode_bf16(value); }
};
struct F16Target {
  using Stored = std::uint16_t;
  static TP_HOST_DEVICE Stored encode(float value) { return encode_f16(value); }
};
struct F32Target {
  using Stored = float;
  static TP_HOST_DEVICE Stored encode(float value) { return value; }
};

/// What a launch of an fp8 kernel works on. Plain data, passed by value.
struct ExpandFp8Arguments {
  const std::uint8_t* payload;
  ScaleValues scale;
  void* target;
  std::uint64_t element_count;
  ScaleGrid grid;
};

/// Expands the elements first, first + stride … : the body of a kernel, and of the host's test.
template <class Target>
TP_HOST_DEVICE void expand_fp8_elements(Fp8Format format, const ExpandFp8Arguments& arguments,
                                        std::uint64_t first, std::uint64_t stride) {
  auto* target = static_cast<typename Target::Stored*>(arguments.target);
  for (std::uint64_t at = first; at < arguments.element_count; at += stride) {
    float value = decode_fp8(format, arguments.payload[at]);
    if (!arguments.scale.empty()) {
      const float scale = arguments.scale[scale_index(arguments.grid, at)];
      value = value * scale;
    }
    target[at] = Target::encode(value);
  }
}

}  // namespace trash_panda::runtime::cuda
