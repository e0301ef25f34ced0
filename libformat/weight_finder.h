#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/weights.h"

#include "comfy_layers.h"
#include "companion_names.h"
#include "quantization_config.h"
#include "scale_granularity.h"
#include "torchao_metadata.h"

namespace trash_panda::format {

/// An error of reason "unsupported_format". @param message  Names the weight and the format.
Error unsupported_format(std::string message);

/// Types whose elements can be codes of a quantized weight: small integers and sub-byte floats.
bool is_code_dtype(Dtype dtype);

/// Puts every tensor of a checkpoint into its place; find_weights() is one run of it.
///
/// The order of the steps is the rule of precedence: what metadata names, then packed schemes,
/// then scales by name beside weights that are stored quantized; what is left is a parameter.
class WeightFinder {
 public:
  explicit WeightFinder(const Checkpoint& checkpoint);

  Result<WeightTable> find();

 private:
  enum class Place : std::uint8_t { kParameter, kScale, kIgnored };

  static constexpr std::size_t kNoScale = static_cast<std::size_t>(-1);

  Result<void> read_metadata();
  Result<void> apply_comfy_layers();
  Result<void> apply_torchao();
  Result<void> find_quantized();
  Result<void> refuse_packed() const;
  Result<void> refuse_scaled_codes() const;
  [[nodiscard]] Error refuse_scheme(std::string_view scheme, std::string_view first_weight,
                                    const std::vector<std::size_t>& payloads) const;
  Result<void> place_companions();
  Result<void> place_scale(std::size_t tensor_index, const Companion& companion);
  [[nodiscard]] std::optional<std::size_t> find_weight_of(std::size_t tensor_index,
                                                          const Companion& companion) const;
  Result<void> pair(std::size_t scale_index, std::size_t weight_index, const ScaleHints& hints);
  Result<void> pair_swizzled(std::size_t weight_index);
  Result<void> keep_pair(std::size_t weight_index, WeightScale scale);
  void place_layer_scale(std::size_t tensor_index, CompanionRole role);
  Result<void> check_unscaled();
  /// @param only_quantized  Only those that are stored as quantized weights are themselves.
  Result<void> check_unknown_companions(bool only_quantized) const;
  [[nodiscard]] std::unordered_map<std::string_view, std::size_t> unscaled_by_module() const;
  Result<void> check_integers() const;
  void collect();

  [[nodiscard]] Dtype payload_dtype(std::size_t tensor_index) const;
  [[nodiscard]] std::string name_of(std::size_t tensor_index) const;
  void ignore(std::size_t tensor_index) { places_[tensor_index] = Place::kIgnored; }

  const Checkpoint& checkpoint_;
  QuantizationConfig config_;
  ComfyLayers comfy_;
  std::vector<TorchaoWeight> torchao_;
  ScaleHints hints_;
  std::vector<Place> places_;                              ///< By tensor.
  std::unordered_map<std::size_t, Dtype> payload_dtypes_;  ///< Where not the stored one.
  std::vector<WeightScale> scales_;
  std::vector<std::size_t> scale_of_;  ///< Into scales_, by tensor of the weight; kNoScale: none.
  std::unordered_map<std::size_t, std::string_view> names_;  ///< Where not the stored one.
  bool has_quantized_ = false;                               ///< Some payload is fp8.
  WeightTable table_;
};

}  // namespace trash_panda::format
