#pragma once

#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// Whether `scale` is the canonical shape of a scale for a weight of shape `weight`.
///
/// @param block_shape  {rows, columns}, both positive; empty unless Granularity::kBlock.
/// @see Granularity, WeightScale::shape
[[nodiscard]] bool scale_shape_fits(const Shape& weight, const Shape& scale,
                                    Granularity granularity, const Shape& block_shape);

}  // namespace trash_panda::format
