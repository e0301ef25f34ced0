#include <string>
#include <string_view>
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

/// `X.weight_something` beside a quantized `X.weight` is a part of it, and what it does is unknown.
Result<void> WeightFinder::check_unknown_companions() const {
  for (std::size_t index = 0; has_quantized_ && index < places_.size(); ++index) {
    const SplitName name = split_name(checkpoint_.tensors()[index].name);
    if (places_[index] != Place::kParameter || !name.leaf.starts_with("weight_")) {
      continue;
    }
    const auto weight = checkpoint_.find(fmt::format("{}.weight", name.module));
    if (weight && is_fp8(payload_dtype(*weight))) {
      return std::unexpected(unsupported_format(
          fmt::format("tensor {} belongs to the quantized weight {}, but its meaning "
                      "is not known",
                      name_of(index), name_of(*weight))));
    }
  }
  return {};
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
