#pragma once

#include <optional>

#include "trash_panda/runtime/expand.h"

#include "cuda/expand_kernel.h"

namespace trash_panda::runtime {

using cuda::ScaleGrid;

/// Product of the dimensions; nothing when it does not fit in 64 bits.
[[nodiscard]] std::optional<std::uint64_t> element_count(const format::Shape& shape);

/// The scales of a weight, but for their values.
struct ScaleForm {
  std::uint64_t count;  ///< 0: the weight has no scale.
  format::Granularity granularity;
  std::uint64_t block_rows;
  std::uint64_t block_columns;
};

/// How scales lie over the elements of a weight; nothing when their number does not agree with
/// shape and granularity. Without scales, or without elements: one matrix of one row.
[[nodiscard]] std::optional<ScaleGrid> make_scale_grid(const format::Shape& shape,
                                                       const ScaleForm& scale);

}  // namespace trash_panda::runtime
