#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "packed_schemes.h"
#include "scale_remarks.h"
#include "weight_finder.h"

namespace trash_panda::format {

namespace {

/// ComfyUI formats whose payload is fp8, and which fp8: the tensor itself may be U8.
std::optional<Dtype> fp8_of_comfy(std::string_view format) {
  if (format == "float8_e4m3fn" || format == kComfyMxfp8) {
    return Dtype::kF8E4M3;
  }
  return format == "float8_e5m2" ? std::optional(Dtype::kF8E5M2) : std::nullopt;
}

}  // namespace

/// All weights of one scheme are told of together: how much of the model it is decides what helps.
Error WeightFinder::refuse_scheme(std::string_view scheme, std::string_view first_weight,
                                  const std::vector<std::size_t>& payloads) const {
  // A payload with several companions was met with each of them.
  const std::set<std::size_t> distinct(payloads.begin(), payloads.end());
  std::uint64_t size_bytes = 0;
  for (const std::size_t index : distinct) {
    size_bytes += checkpoint_.tensors()[index].size_bytes;
  }
  return unsupported_format(
      fmt::format("weight {} is stored as {}, which is not supported ({} weight{} of it, {} of {})",
                  printable(first_weight), scheme, format_count(distinct.size()),
                  distinct.size() == 1 ? "" : "s", format_bytes(size_bytes),
                  format_bytes(checkpoint_.total_bytes())));
}

Result<void> WeightFinder::apply_comfy_layers() {
  std::string refused;
  std::vector<std::size_t> refused_weights;
  // Names by what is said of them.
  std::map<std::string, std::vector<std::string_view>> contradicted;
  for (const auto& [weight, layer] : comfy_.by_weight) {
    const auto fp8 = fp8_of_comfy(layer.format);
    if (!fp8 || !layer.option.empty()) {
      const std::string scheme =
          fmt::format("ComfyUI format \"{}\"{}{}", excerpt(layer.format),
                      layer.option.empty() ? "" : " with ", excerpt(layer.option));
      refused = refused.empty() ? scheme : refused;
      if (scheme == refused) {
        refused_weights.push_back(weight);
      }
      continue;
    }
    const TensorRecord& stored = checkpoint_.tensors()[weight];
    if (stored.dtype == Dtype::kU8) {
      payload_dtypes_.insert({weight, *fp8});
    } else if (stored.dtype != *fp8) {
      contradicted[fmt::format("\"{}\" by ComfyUI's metadata, but stored as {}, which counts",
                               excerpt(layer.format), dtype_name(stored.dtype))]
          .push_back(stored.name);
    }
    if (layer.format == kComfyMxfp8) {
      TP_RETURN_IF_ERROR(pair_swizzled(weight));
    }
  }
  if (!refused_weights.empty()) {
    return std::unexpected(refuse_scheme(
        refused, checkpoint_.tensors()[refused_weights.front()].name, refused_weights));
  }
  for (const auto& [contradiction, names] : contradicted) {
    table_.warnings.push_back(fmt::format("{} weight{} {}: {}", names.size(),
                                          names.size() == 1 ? " is" : "s are", contradiction,
                                          list_names(names)));
  }
  return {};
}

Result<void> WeightFinder::apply_torchao() {
  std::vector<std::size_t> refused;
  for (const TorchaoWeight& weight : torchao_) {
    const Dtype dtype = checkpoint_.tensors()[weight.payload].dtype;
    if (!is_fp8(dtype)) {
      refused.push_back(weight.payload);
      continue;
    }
    ScaleHints hints = hints_;
    hints.tiles = weight.tiles;
    hints.tiles_only = false;
    TP_RETURN_IF_ERROR(pair(weight.scale, weight.payload, hints));
    names_.insert({weight.payload, weight.name});
  }
  if (!refused.empty()) {
    const TensorRecord& first = checkpoint_.tensors()[refused.front()];
    return std::unexpected(refuse_scheme(fmt::format("torchao {} data", dtype_name(first.dtype)),
                                         first.name, refused));
  }
  return {};
}

Result<void> WeightFinder::refuse_packed() const {
  std::optional<PackedScheme> first;
  std::vector<std::size_t> payloads;
  for (std::size_t index = 0; index < places_.size(); ++index) {
    auto scheme = match_packed(checkpoint_, index, config_);
    if (!scheme || (first && scheme->name != first->name)) {
      continue;
    }
    payloads.push_back(scheme->payload);
    first = first ? first : std::move(scheme);
  }
  if (!first) {
    return {};
  }
  return std::unexpected(refuse_scheme(first->name, first->weight, payloads));
}

/// Small integers with a scale beside them are codes of a scheme that nothing else told.
Result<void> WeightFinder::refuse_scaled_codes() const {
  const auto is_code = [this](std::size_t index) { return is_code_dtype(payload_dtype(index)); };
  if (std::ranges::none_of(std::views::iota(std::size_t{0}, places_.size()), is_code)) {
    return {};  // As in nearly all checkpoints, whose names need no second look.
  }
  std::string refused;
  std::vector<std::size_t> weights;
  for (std::size_t index = 0; index < places_.size(); ++index) {
    const Companion companion = parse_companion(checkpoint_.tensors()[index].name);
    const bool is_scale =
        companion.role == CompanionRole::kScale || companion.role == CompanionRole::kPossibleScale;
    const auto weight = places_[index] == Place::kParameter && is_scale
                            ? find_weight_of(index, companion)
                            : std::nullopt;
    if (!weight || !is_code(*weight)) {
      continue;
    }
    const std::string scheme = integer_scheme(checkpoint_, *weight, index, config_);
    refused = refused.empty() ? scheme : refused;
    if (scheme == refused) {
      weights.push_back(*weight);
    }
  }
  if (weights.empty()) {
    return {};
  }
  return std::unexpected(
      refuse_scheme(refused, checkpoint_.tensors()[weights.front()].name, weights));
}

}  // namespace trash_panda::format
