#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// Which elements of a weight share one scale. "Leading dimensions" are all but the last two.
enum class Granularity : std::uint8_t {
  kTensor,  ///< One scale for the whole weight, shape [].
  kRow,     ///< One per slice along the first dimensions: [out, 1]; for weights of more than two
            ///< dimensions [experts, 1, 1], [experts, out, 1] or, of a convolution, [out, 1, 1, 1].
            ///< So the weight is as many equal contiguous runs as there are scales, one each.
  kColumn,  ///< One per input channel: the leading dimensions, then [1, in].
  kBlock,   ///< One per `block_shape` tile of the last two dimensions: the leading dimensions, then
            ///< [ceil(out/bo), ceil(in/bi)]. Groups along a row are tiles of one row.
};

/// "tensor", "row", "column", "block".
[[nodiscard]] std::string_view granularity_name(Granularity granularity);

/// Where the elements of a canonical scale lie in the stored one.
enum class ScaleTransform : std::uint8_t {
  kNone,      ///< One after the other, as in the canonical one.
  kCrop,      ///< In the first rows and columns of a larger grid, of each grid of a stack.
  kSwizzled,  ///< In the layout of cuBLAS's block-scaled products, padded to whole tiles.
};

/// The multiplicative scale of a weight: value = decoded payload * scale.
struct WeightScale {
  std::size_t tensor_index;  ///< Of the stored scale, into Checkpoint::tensors().
  Granularity granularity;
  Shape shape;        ///< Canonical shape, as listed at Granularity.
  Shape block_shape;  ///< {rows, columns} of a tile; empty unless kBlock.
  /// Canonical dtype: F8_E8M0 where exponent codes belong to groups of 32 along a row, as those of
  /// the MX formats do, and F32 for all others.
  Dtype dtype = Dtype::kF32;
  ScaleTransform transform;
};

/// A data tensor with its companions, under its canonical form.
struct Weight {
  /// Of the parameter, valid as long as the Checkpoint. The stored tensor has the same name, except
  /// where a convention splits a parameter (torchao's X._weight_qdata).
  std::string_view name;
  std::size_t tensor_index;  ///< Of the payload, into Checkpoint::tensors().
  Dtype dtype;               ///< Of the payload: differs from the stored one where fp8 lies in U8.
  std::optional<WeightScale> scale;

  /// `<weight>_scale`: the canonical name of its scale.
  [[nodiscard]] std::string scale_name() const { return std::string(name) + "_scale"; }
};

/// A stored scale that holds a value which is seldom meant; one for each kind of such values.
struct SpecialScale {
  std::size_t tensor_index;  ///< Of the scale, into Checkpoint::tensors().
  std::string_view kind;     ///< @see special_scale_values
};

/// Every tensor of a checkpoint in exactly one place: a weight, the scale of one, ignored, or tied.
struct WeightTable {
  std::vector<Weight> weights;       ///< In the order of Checkpoint::tensors().
  std::vector<std::size_t> ignored;  ///< Activation and cache scales, markers: not parameters.
  /// Tied name → name of the weight that has the same bytes and, where it has one, the same scale.
  /// Not across numbered blocks: each streams alone, so it has its own copy of what it shares.
  std::map<std::string, std::string, std::less<>> aliases;
  std::vector<std::size_t> tied;      ///< Payloads and scales of `aliases`, in no certain order.
  std::vector<std::string> formats;   ///< Storage conventions found, most bytes first, such as
                                      ///< "fp8 (scale per tensor)" or "bf16".
  std::vector<std::string> warnings;  ///< One line each, naming the tensors.
  /// Whether the scales were few enough that all their values were looked at.
  bool are_scale_values_checked = false;
  std::vector<SpecialScale> special_scales;  ///< Those found; the warnings name the first few.
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

/// Bytes of the canonical scale.
[[nodiscard]] std::uint64_t scale_size_bytes(const WeightScale& scale);

/// Reads a run of the canonical scale's bytes, row-major and little-endian, as packs hold them. In
/// memory that grows with the run only.
///
/// @param offset_bytes  From the start of the canonical scale; it may be within an element.
Result<void> read_scale_bytes(const Checkpoint& checkpoint, const WeightScale& scale,
                              std::uint64_t offset_bytes, std::span<std::byte> target);

/// Reads a stored scale and returns its values in canonical order, row-major, whatever their dtype.
Result<std::vector<float>> read_scale(const Checkpoint& checkpoint, const WeightScale& scale);

/// Reads a run of what read_scale() returns, in memory that grows with the run only.
///
/// @param first_element  First of the run, which lies within the scale.
Result<void> read_scale_part(const Checkpoint& checkpoint, const WeightScale& scale,
                             std::uint64_t first_element, std::span<float> target);

/// Names the values that are seldom meant which scales hold, each once: "NaN", "infinite", "unset
/// (the lowest F32)" as vLLM leaves it, "negative", "zero", in this order.
///
/// find_weights() warns of them where the scales are few; find_special_scales() reads any number.
[[nodiscard]] std::vector<std::string_view> special_scale_values(std::span<const float> scales);

/// Looks at every value of every scale, however many there are, in bounded memory.
///
/// @return In the order of the weights.
Result<std::vector<SpecialScale>> find_special_scales(const Checkpoint& checkpoint,
                                                      const std::vector<Weight>& weights);

/// A line for each kind of special value, naming the first scales that have it.
[[nodiscard]] std::vector<std::string> special_scale_warnings(
    const Checkpoint& checkpoint, const std::vector<SpecialScale>& special);

/// What a weight is stored as, for people: "bf16", "fp8 (scale per tensor)", "fp8 (no scale)".
///
/// @param granularity  Nothing where it has no scale.
[[nodiscard]] std::string storage_name(Dtype dtype, std::optional<Granularity> granularity,
                                       const Shape& block_shape);

}  // namespace trash_panda::format
