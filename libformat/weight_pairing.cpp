#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "packed_schemes.h"
#include "scale_fit.h"
#include "scale_swizzle.h"
#include "scale_values.h"
#include "weight_finder.h"

namespace trash_panda::format {

namespace {

bool is_layer_scale(CompanionRole role) {
  return role == CompanionRole::kActivation || role == CompanionRole::kPreQuantScale ||
         role == CompanionRole::kCache;
}

bool is_exponent(Dtype dtype) {
  return dtype == Dtype::kF8E8M0 || dtype == Dtype::kU8;
}

Error misfit(const TensorRecord& scale, const TensorRecord& weight) {
  return Error(ErrorCode::kCorrupt,
               fmt::format("scale {} {} does not fit its weight {} {}", printable(scale.name),
                           to_string(scale.shape), printable(weight.name), to_string(weight.shape)))
      .with_reason("scale_shape");
}

}  // namespace

Result<void> WeightFinder::place_companions() {
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (places_[index] != Place::kParameter) {
      continue;
    }
    const Companion companion = parse_companion(checkpoint_.tensors()[index].name);
    if (companion.role == CompanionRole::kNone) {
      continue;
    }
    if (companion.role == CompanionRole::kMarker) {
      ignore(index);
    } else if (companion.role == CompanionRole::kPreference) {
      if (checkpoint_.tensors()[index].dtype == Dtype::kU8) {
        ignore(index);
      }
    } else {
      TP_RETURN_IF_ERROR(place_scale(index, companion));
    }
  }
  return {};
}

std::optional<std::size_t> WeightFinder::find_weight_of(std::size_t tensor_index,
                                                        const Companion& companion) const {
  // Many writers put a scale right behind its weight.
  if (tensor_index > 0 && companion.belongs_to(checkpoint_.tensors()[tensor_index - 1].name)) {
    return tensor_index - 1;
  }
  return checkpoint_.find(companion.weight());
}

Result<void> WeightFinder::place_scale(std::size_t tensor_index, const Companion& companion) {
  const auto weight = find_weight_of(tensor_index, companion);
  if (weight && is_fp8(payload_dtype(*weight))) {
    return pair(tensor_index, *weight, hints_);
  }
  if (is_layer_scale(companion.role)) {
    place_layer_scale(tensor_index, companion.role);
    return {};
  }
  const bool is_certain = companion.role == CompanionRole::kScale;
  if (!weight) {
    if (is_certain && has_quantized_) {
      ignore(tensor_index);
      table_.warnings.push_back(fmt::format("scale {} is left out: its weight {} is not here",
                                            name_of(tensor_index), printable(companion.weight())));
    }
    return {};
  }
  if (is_certain) {
    table_.warnings.push_back(fmt::format(
        "{} is kept as a parameter: {} beside it is not quantized"
        " ({})",
        name_of(tensor_index), name_of(*weight), dtype_name(checkpoint_.tensors()[*weight].dtype)));
  }
  return {};
}

Result<void> WeightFinder::pair(std::size_t scale_index, std::size_t weight_index,
                                const ScaleHints& hints) {
  const TensorRecord& scale = checkpoint_.tensors()[scale_index];
  const TensorRecord& weight = checkpoint_.tensors()[weight_index];
  if (!is_scale_dtype(scale.dtype) || (scale.dtype == Dtype::kU8 && !config_.exponent_scales)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("scale {} of weight {} has dtype {}, which is none that scales have",
                          name_of(scale_index), name_of(weight_index), dtype_name(scale.dtype)))
            .with_reason("scale_dtype"));
  }
  const bool has_exponents = is_exponent(scale.dtype);
  auto fit = has_exponents ? fit_mx_groups(weight.shape, scale.shape, hints) : std::nullopt;
  if (!fit) {
    fit = fit_scale(weight.shape, scale.shape, hints);
  }
  if (!fit) {
    return std::unexpected(misfit(scale, weight));
  }
  if (fit->is_cropped) {
    table_.warnings.push_back(
        fmt::format("scale {} {} is cut to {}: its weight {} {} has no more tiles",
                    name_of(scale_index), to_string(scale.shape), to_string(fit->shape),
                    name_of(weight_index), to_string(weight.shape)));
  }
  return keep_pair(
      weight_index,
      {.tensor_index = scale_index,
       .granularity = fit->granularity,
       .shape = fit->shape,
       .block_shape = fit->block_shape,
       .dtype = has_exponents && is_mx_block(fit->granularity, fit->block_shape) ? Dtype::kF8E8M0
                                                                                 : Dtype::kF32,
       .transform = fit->is_cropped ? ScaleTransform::kCrop : ScaleTransform::kNone});
}

Result<void> WeightFinder::pair_swizzled(std::size_t weight_index) {
  const TensorRecord& weight = checkpoint_.tensors()[weight_index];
  const auto scale_index = checkpoint_.find(fmt::format("{}_scale", weight.name));
  if (!scale_index || !is_fp8(payload_dtype(weight_index))) {
    return {};  // Judged later, as any layer's: a missing scale, or a weight that is not fp8.
  }
  const TensorRecord& scale = checkpoint_.tensors()[*scale_index];
  if (!is_exponent(scale.dtype)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("scale {} of the MXFP8 weight {} has dtype {}, not F8_E8M0 or U8",
                          name_of(*scale_index), name_of(weight_index), dtype_name(scale.dtype)))
            .with_reason("scale_dtype"));
  }
  if (weight.shape.size() != 2 || weight.shape[1] % kMxGroupSize != 0) {
    return std::unexpected(misfit(scale, weight));
  }
  const Shape grid = {weight.shape[0], weight.shape[1] / kMxGroupSize};
  if (scale.shape != swizzled_shape(grid)) {
    return std::unexpected(misfit(scale, weight));
  }
  return keep_pair(weight_index, {.tensor_index = *scale_index,
                                  .granularity = Granularity::kBlock,
                                  .shape = grid,
                                  .block_shape = {1, kMxGroupSize},
                                  .dtype = Dtype::kF8E8M0,
                                  .transform = ScaleTransform::kSwizzled});
}

Result<void> WeightFinder::keep_pair(std::size_t weight_index, WeightScale scale) {
  const std::size_t scale_index = scale.tensor_index;
  if (places_[scale_index] == Place::kScale) {
    return {};  // Its convention's metadata was here first.
  }
  if (const std::size_t other = scale_of_[weight_index]; other != kNoScale) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("weight {} has two scales, {} and {}", name_of(weight_index),
                          name_of(scales_[other].tensor_index), name_of(scale_index)))
            .with_reason("scale_ambiguous"));
  }
  scale_of_[weight_index] = scales_.size();
  scales_.push_back(std::move(scale));
  places_[scale_index] = Place::kScale;
  return {};
}

void WeightFinder::place_layer_scale(std::size_t tensor_index, CompanionRole role) {
  const SplitName name = split_name(checkpoint_.tensors()[tensor_index].name);
  if (role == CompanionRole::kCache) {
    if (has_quantized_ || config_.is_quantized()) {
      ignore(tensor_index);
    }
    return;
  }
  const auto weight = checkpoint_.find(fmt::format("{}.weight", name.module));
  if (!has_quantized_ || (weight && !is_fp8(payload_dtype(*weight)))) {
    return;
  }
  ignore(tensor_index);
  if (role == CompanionRole::kPreQuantScale) {
    table_.warnings.push_back(fmt::format(
        "{} is left out: it multiplies the layer's input, not its weight", name_of(tensor_index)));
  }
}

}  // namespace trash_panda::format
