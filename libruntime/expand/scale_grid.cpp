#include "expand/scale_grid.h"

#include <algorithm>

namespace trash_panda::runtime {

namespace {

using format::Granularity;
using format::Shape;

/// Whether `count` is the product of the first dimensions, however many.
bool is_prefix_product(const Shape& shape, std::uint64_t count) {
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : shape) {
    if (product == count) {
      return true;
    }
    product *= dimension;
  }
  return product == count;
}

/// Scales that each cover a run of neighbouring elements: per tensor, per row, per expert.
ScaleGrid grid_of_runs(std::uint64_t elements, std::uint64_t scale_count) {
  const std::uint64_t columns = elements / scale_count;
  return {.matrix_count = 1,
          .rows = scale_count,
          .columns = columns,
          .tile_rows = 1,
          .tile_columns = columns};
}

std::optional<ScaleGrid> grid_of_columns(std::uint64_t elements, std::uint64_t rows,
                                         std::uint64_t columns, std::uint64_t scale_count) {
  if (scale_count == columns) {  // Shared by all leading dimensions.
    rows = elements / columns;
  }
  const std::uint64_t matrix_count = elements / rows / columns;
  if (scale_count != matrix_count * columns) {
    return std::nullopt;
  }
  return ScaleGrid{.matrix_count = matrix_count,
                   .rows = rows,
                   .columns = columns,
                   .tile_rows = rows,
                   .tile_columns = 1};
}

}  // namespace

std::optional<std::uint64_t> element_count(const Shape& shape) {
  if (std::ranges::find(shape, 0U) != shape.end()) {
    return 0;
  }
  std::uint64_t product = 1;
  for (const std::uint64_t dimension : shape) {
    if (product > UINT64_MAX / dimension) {
      return std::nullopt;
    }
    product *= dimension;
  }
  return product;
}

std::optional<ScaleGrid> make_scale_grid(const Shape& shape, const ScaleForm& scale) {
  const std::optional<std::uint64_t> elements = element_count(shape);
  if (!elements) {
    return std::nullopt;
  }
  if (scale.count == 0 || *elements == 0) {
    return grid_of_runs(*elements, 1);
  }
  const std::uint64_t columns = shape.empty() ? 1 : shape.back();
  const std::uint64_t rows = shape.size() < 2 ? 1 : shape[shape.size() - 2];
  switch (scale.granularity) {
    case Granularity::kTensor:
      if (scale.count != 1) {
        return std::nullopt;
      }
      return grid_of_runs(*elements, scale.count);
    case Granularity::kRow:
      if (!is_prefix_product(shape, scale.count)) {
        return std::nullopt;
      }
      return grid_of_runs(*elements, scale.count);
    case Granularity::kColumn:
      return grid_of_columns(*elements, rows, columns, scale.count);
    case Granularity::kBlock: {
      if (scale.block_rows == 0 || scale.block_columns == 0) {
        return std::nullopt;
      }
      // A tile beyond the matrix is cut to it, so that sums of sizes can't overflow.
      const ScaleGrid grid = {.matrix_count = *elements / rows / columns,
                              .rows = rows,
                              .columns = columns,
                              .tile_rows = std::min(scale.block_rows, rows),
                              .tile_columns = std::min(scale.block_columns, columns)};
      const std::uint64_t expected = grid.matrix_count * grid.grid_rows() * grid.grid_columns();
      return scale.count == expected ? std::optional(grid) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace trash_panda::runtime
