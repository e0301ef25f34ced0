#pragma once

#include <cstdint>

#include "trash_panda/format/weights.h"

namespace trash_panda::format {

/// Elements of a row that share a scale in the MX formats.
/// @see OCP Microscaling Formats Specification, revision 1.0, section 5.2
inline constexpr std::uint64_t kMxGroupSize = 32;

/// Whether scales belong to groups of kMxGroupSize along a row.
[[nodiscard]] bool is_mx_block(Granularity granularity, const Shape& block_shape);

/// Whether canonical scales may be of this dtype: F32, or F8_E8M0 where is_mx_block().
[[nodiscard]] bool scale_dtype_fits(Dtype dtype, Granularity granularity, const Shape& block_shape);

/// Whether `scale` is the canonical shape of a scale for a weight of shape `weight`.
///
/// @param block_shape  {rows, columns}, both positive; empty unless Granularity::kBlock.
/// @see Granularity, WeightScale::shape
[[nodiscard]] bool scale_shape_fits(const Shape& weight, const Shape& scale,
                                    Granularity granularity, const Shape& block_shape);

}  // namespace trash_panda::format
