#include "companion_names.h"

#include <algorithm>
#include <array>

namespace trash_panda::format {

namespace {

constexpr std::array<std::string_view, 8> kActivationScales = {
    "input_scale",    "scale_input", "act_scale",          "activation_scale",
    "input_scale_ub", "qscale_act",  "input_global_scale", "input_zero_point",
};

constexpr std::array<std::string_view, 5> kCacheScales = {
    "k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale",
};

bool contains(auto const& names, std::string_view leaf) {
  return std::ranges::find(names, leaf) != names.end();
}

CompanionRole role_of_leaf(SplitName name) {
  const std::string_view leaf = name.leaf;
  if (leaf == "weight_scale" || leaf == "scale_weight" || leaf == "qscale_weight" ||
      leaf.ends_with("_scale_inv")) {
    return CompanionRole::kScale;
  }
  if (contains(kActivationScales, leaf)) {
    return CompanionRole::kActivation;
  }
  if (contains(kCacheScales, leaf) || leaf.ends_with("output_scale")) {
    return CompanionRole::kCache;
  }
  if (leaf == "pre_quant_scale") {
    return CompanionRole::kPreQuantScale;
  }
  if (leaf == "scale" || leaf.ends_with("_scale")) {
    return CompanionRole::kPossibleScale;
  }
  if (leaf == "scaled_fp8") {
    return CompanionRole::kMarker;
  }
  if (leaf == "config" && split_name(name.module).leaf == "comfy_attention") {
    return CompanionRole::kPreference;
  }
  return CompanionRole::kNone;
}

}  // namespace

SplitName split_name(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) {
    return {.module = {}, .leaf = name};
  }
  return {.module = name.substr(0, dot), .leaf = name.substr(dot + 1)};
}

bool sounds_like_companion(std::string_view leaf) {
  constexpr std::array<std::string_view, 5> kParts = {"scal", "zero", "absmax", "codebook",
                                                      "quant_map"};
  // Well-known parameters of diffusion models and of pairs of encoders.
  if (leaf == "logit_scale" || leaf.starts_with("scale_shift")) {
    return false;
  }
  return std::ranges::any_of(
      kParts, [leaf](std::string_view part) { return leaf.find(part) != std::string_view::npos; });
}

Companion parse_companion(std::string_view name) {
  const SplitName split = split_name(name);
  Companion companion{.role = role_of_leaf(split), .weight_stem = {}, .weight_tail = {}};
  if (companion.role == CompanionRole::kNone) {
    return companion;
  }
  constexpr std::string_view kScale = "_scale";
  constexpr std::string_view kScaleInverse = "_scale_inv";
  if (split.leaf == "scale" || split.leaf == "scale_weight" || split.leaf == "qscale_weight") {
    companion.weight_stem = split.module;
    companion.weight_tail = split.module.empty() ? "weight" : ".weight";
  } else if (split.leaf.ends_with(kScale)) {
    companion.weight_stem = name.substr(0, name.size() - kScale.size());
  } else if (split.leaf.ends_with(kScaleInverse)) {
    companion.weight_stem = name.substr(0, name.size() - kScaleInverse.size());
  }
  return companion;
}

}  // namespace trash_panda::format
