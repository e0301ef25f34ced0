#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trash_panda::format {

/// What a tensor's name says that it is to another tensor. What is stored decides whether it is so:
/// `norm.scale` and `logit_scale` are parameters that only look like scales.
enum class CompanionRole : std::uint8_t {
  kNone,
  kScale,          ///< Of a weight, by a name that no parameter has, such as `X.weight_scale_inv`.
  kPossibleScale,  ///< `X.scale`, `P_scale`: of a weight where that is quantized.
  kActivation,     ///< Of a layer's inputs or outputs: of no use to who has the weights in full.
  kPreQuantScale,  ///< Multiplies a layer's inputs to undo a smoothing of its weight.
  kCache,          ///< Of the key and value cache.
  kMarker,         ///< ComfyUI's `scaled_fp8`, which says that the file has scales.
  kPreference,     ///< ComfyUI's attention settings.
};

struct Companion {
  CompanionRole role = CompanionRole::kNone;
  /// Name of the tensor that it would belong to, in two parts that nobody has to put together for
  /// each of many; both empty: none by name.
  std::string_view weight_stem;  ///< In the companion's own name.
  std::string_view weight_tail;

  [[nodiscard]] std::string weight() const {
    return std::string(weight_stem) + std::string(weight_tail);
  }
  /// Whether the tensor of this name is the one that it would belong to.
  [[nodiscard]] bool belongs_to(std::string_view tensor) const {
    return tensor.size() == weight_stem.size() + weight_tail.size() &&
           tensor.starts_with(weight_stem) && tensor.ends_with(weight_tail);
  }
};

/// @see formats.md, section 1: spellings of rows 2, 3, 8, 9, 10, 16, 17, 18 and rule (i)
Companion parse_companion(std::string_view name);

/// The part of a name after its last dot, and what is before that dot.
struct SplitName {
  std::string_view module;
  std::string_view leaf;
};
SplitName split_name(std::string_view name);

/// Whether the last part of a name is one that quantized weights call their companions by, in
/// whatever format: scales, zero points, tables. Parameters are called so as well.
bool sounds_like_companion(std::string_view leaf);

}  // namespace trash_panda::format
