#pragma once

#include <optional>
#include <vector>

#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/weights.h"

#include "quantization_config.h"

namespace trash_panda::format {

/// What is known about a scale besides its shape.
struct ScaleHints {
  std::vector<TileShape> tiles;  ///< From a configuration; the only sizes that are cropped to.
  bool tiles_only = false;       ///< See QuantizationConfig.
  /// FBGEMM's expert stacks are [experts, in, out], and a scale [experts, out, 1] lies along the
  /// last dimension of the weight, even where in == out.
  bool stack_scales_are_last_axis = false;
};

/// How a scale spreads over its weight.
struct ScaleFit {
  Granularity granularity;
  Shape shape;        ///< Canonical.
  Shape block_shape;  ///< Empty unless kBlock.
  bool is_cropped = false;
};

/// Decides what a scale of this shape means for a weight of that shape.
///
/// A bare vector counts along the first dimension, on square weights too. Tiles of 128 x 128 and
/// power-of-two groups are assumed without a configuration only where the grid is exactly theirs;
/// the size is never derived from the number of tiles.
///
/// @return Nothing when the shape fits no rule: the caller says so, naming both.
std::optional<ScaleFit> fit_scale(const Shape& weight, const Shape& stored_scale,
                                  const ScaleHints& hints);

/// The same for exponent codes alone, which are MX groups where their shape is that of groups of 32
/// and no configuration speaks of other tiles: so those of a short row are not taken for its scale.
///
/// @return Nothing when they are no MX groups.
std::optional<ScaleFit> fit_mx_groups(const Shape& weight, const Shape& stored_scale,
                                      const ScaleHints& hints);

}  // namespace trash_panda::format
