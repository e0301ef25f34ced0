#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// Which elements of a weight share one scale.
enum class Granularity : std::uint8_t {
  kTensor,  ///< One scale, shape [].
  kRow,     ///< One per output channel, shape [out, 1].
  kColumn,  ///< One per input channel, shape [1, in].
  kBlock,   ///< One per `block_shape` tile, shape [ceil(out/bo), ceil(in/bi)].
};

/// "tensor", "row", "column", "block".
[[nodiscard]] std::string_view granularity_name(Granularity granularity);

/// How a stored scale becomes the canonical one.
enum class ScaleTransform : std::uint8_t {
  kWiden,   ///< F32 as it is; BF16 and F16 widened to F32, exactly; same order of elements.
  kE8m0,    ///< Exponent codes to F32: 2^(code - 127), code 255 is NaN.
  kCrop,    ///< As kWiden, but the stored grid has more rows or columns than the canonical one.
};

/// The multiplicative scale of a weight: value = decoded payload * scale.
struct WeightScale {
  std::size_t tensor_index;  ///< Of the stored scale, into Checkpoint::tensors().
  Granularity granularity;
  Shape shape;        ///< Canonical shape, as listed at Granularity, with the weight's leading
                      ///< dimensions before it where the weight has more than two.
  Shape block_shape;  ///< {rows, columns} of a tile; empty unless kBlock.
  ScaleTransform transform;
};

/// A data tensor with its companions, under its canonical form.
struct Weight {
  std::string name;          ///< As in the checkpoint.
  std::size_t tensor_index;  ///< Of the payload, into Checkpoint::tensors().
  Dtype dtype;               ///< Of the payload: differs from the stored one where fp8 lies in U8.
  std::optional<WeightScale> scale;

  /// `<weight>_scale`: the canonical name of its scale.
  [[nodiscard]] std::string scale_name() const { return name + "_scale"; }
};

/// Every tensor of a checkpoint in exactly one place.
struct WeightTable {
  std::vector<Weight> weights;        ///< In the order of Checkpoint::tensors().
  std::vector<std::size_t> ignored;   ///< Activation and cache scales, markers: not parameters.
  std::vector<std::string> formats;   ///< Storage conventions found, e.g. "fp8 (scale per tensor)".
  std::vector<std::string> warnings;  ///< One line each, naming the tensors.
};

/// Recognises the storage convention of every weight and pairs it with its scale.
///
/// A companion that is not understood is an error that names it: it is never dropped. The stored
/// dtype decides what is quantized; configuration only helps to read it.
///
/// @retval kUnsupported  A quantized format that is not handled, by name (reason
///                       "unsupported_format").
/// @retval kCorrupt      A scale is missing, ambiguous or of a wrong shape or dtype; the message
///                       names weight and scale with both shapes.
/// @see docs/formats.md
Result<WeightTable> find_weights(const Checkpoint& checkpoint);

/// Bytes of the canonical scale: 4 per element of its shape.
[[nodiscard]] std::uint64_t scale_size_bytes(const WeightScale& scale);

/// Reads a stored scale and returns it in canonical form, row-major, one float an element.
Result<std::vector<float>> read_scale(const Checkpoint& checkpoint, const WeightScale& scale);

}  // namespace trash_panda::format
