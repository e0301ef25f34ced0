#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "scale_remarks.h"
#include "weight_finder.h"

namespace trash_panda::format {

Result<void> WeightFinder::check_unscaled() {
  std::vector<std::string_view> unscaled;
  for (std::size_t index = 0; index < places_.size(); ++index) {
    const TensorRecord& weight = checkpoint_.tensors()[index];
    if (places_[index] != Place::kParameter || !is_fp8(payload_dtype(index)) ||
        scale_of_[index] != kNoScale) {
      continue;
    }
    const bool is_layer = comfy_.by_weight.contains(index);
    // Vectors (biases, norms) are never scaled, so none is missing.
    if (weight.shape.size() >= 2 && (is_layer || config_.is_quantized())) {
      return std::unexpected(
          Error(ErrorCode::kCorrupt,
                fmt::format("fp8 weight {} {} has no scale, but {}", name_of(index),
                            to_string(weight.shape),
                            is_layer ? std::string("ComfyUI's metadata says that it is quantized")
                                     : fmt::format("{} says that the model is quantized ({})",
                                                   config_.source, printable(config_.method))))
              .with_reason("scale_missing")
              .with_hint("get the complete checkpoint: the scale may be in another shard"));
    }
    unscaled.push_back(weight.name);
  }
  if (!unscaled.empty()) {
    table_.warnings.push_back(fmt::format("{} fp8 tensor{} without a scale, read as stored: {}",
                                          unscaled.size(), unscaled.size() == 1 ? "" : "s",
                                          list_names(unscaled)));
  }
  return {};
}

/// A tensor that belongs to a quantized weight by its name, and that no rule knew: dropping it, or
/// taking it for a parameter, would change the model without a word.
Result<void> WeightFinder::check_unknown_companions(bool only_quantized) const {
  const std::unordered_map<std::string_view, std::size_t> unscaled = unscaled_by_module();
  if (!has_quantized_ && unscaled.empty()) {
    return {};
  }
  for (std::size_t index = 0; index < places_.size(); ++index) {
    const Dtype dtype = payload_dtype(index);
    if (only_quantized && !is_fp8(dtype) && !is_code_dtype(dtype)) {
      continue;
    }
    const SplitName name = split_name(checkpoint_.tensors()[index].name);
    if (places_[index] != Place::kParameter || name.leaf == "weight" || name.leaf == "bias") {
      continue;
    }
    std::optional<std::size_t> weight = checkpoint_.find(name.module);  // A part of a tensor.
    if (!weight && name.leaf.starts_with("weight_")) {
      weight = checkpoint_.find(fmt::format("{}.weight", name.module));
      const bool is_companion =
          weight && (is_fp8(payload_dtype(*weight)) ||
                     (is_code_dtype(payload_dtype(*weight)) && sounds_like_companion(name.leaf)));
      weight = is_companion ? weight : std::nullopt;
    }
    if (const auto beside = unscaled.find(name.module);
        !weight && beside != unscaled.end() && sounds_like_companion(name.leaf)) {
      weight = beside->second;
    }
    if (weight && *weight != index &&
        (is_fp8(payload_dtype(*weight)) || is_code_dtype(payload_dtype(*weight)))) {
      return std::unexpected(unsupported_format(
          fmt::format("tensor {} belongs to the quantized weight {} {}, but its meaning "
                      "is not known",
                      name_of(index), name_of(*weight), dtype_name(payload_dtype(*weight)))));
    }
  }
  return {};
}

/// Matrices of codes that have no scale so far, by the module that they are in.
std::unordered_map<std::string_view, std::size_t> WeightFinder::unscaled_by_module() const {
  std::unordered_map<std::string_view, std::size_t> unscaled;
  for (std::size_t index = 0; index < places_.size(); ++index) {
    const TensorRecord& tensor = checkpoint_.tensors()[index];
    const Dtype dtype = payload_dtype(index);
    if (places_[index] == Place::kParameter && scale_of_[index] == kNoScale &&
        tensor.shape.size() >= 2 && (is_fp8(dtype) || is_code_dtype(dtype))) {
      const std::string_view module = split_name(tensor.name).module;
      // Of a model's outermost tensors, one called logit_scale is a parameter.
      if (!module.empty()) {
        unscaled.try_emplace(module, index);
      }
    }
  }
  return unscaled;
}

/// Where the configuration says that weights are quantized, matrices of small integers are codes
/// of a scheme that no rule above knew.
Result<void> WeightFinder::check_integers() const {
  std::vector<std::size_t> codes;
  for (std::size_t index = 0; config_.is_quantized() && index < places_.size(); ++index) {
    if (places_[index] == Place::kParameter && is_code_dtype(payload_dtype(index)) &&
        checkpoint_.tensors()[index].shape.size() >= 2) {
      codes.push_back(index);
    }
  }
  if (codes.empty()) {
    return {};
  }
  const TensorRecord& first = checkpoint_.tensors()[codes.front()];
  return std::unexpected(refuse_scheme(
      fmt::format("{} codes of {} (quant_method \"{}\")", dtype_name(first.dtype),
                  config_.algorithm.empty() ? "a quantized weight" : printable(config_.algorithm),
                  printable(config_.method)),
      first.name, codes));
}

}  // namespace trash_panda::format
