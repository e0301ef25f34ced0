#pragma once

#include <optional>

#include "trash_panda/runtime/expand.h"

#include "cuda/expand_kernel.h"

namespace trash_panda::runtime {

using cuda::ScaleGrid;

/// Product of the dimensions; nothing when it does not fit in 64 bits.
[[nodiscard]] std::optional<std::uint64_t> element_count(const format::Shape& shape);

/// How the scales of `source` lie over its elements; nothing when their number does not agree with
/// shape and granularity. Without scales, or without elements: one matrix of one row.
[[nodiscard]] std::optional<ScaleGrid> make_scale_grid(const ExpandSource& source);

}  // namespace trash_panda::runtime
