#include "weight_finder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "packed_schemes.h"
#include "scale_remarks.h"
#include "scale_values.h"
#include "tied_names.h"
#include "weight_formats.h"

namespace trash_panda::format {

namespace {

constexpr std::string_view kUnsupportedHint =
    "dequantize it with the library that made it, or use an fp8 or bf16 checkpoint";

Error unsupported(std::string message) {
  return Error(ErrorCode::kUnsupported, std::move(message))
      .with_reason("unsupported_format")
      .with_hint(std::string(kUnsupportedHint));
}

/// Types whose elements can be codes of a quantized weight.
bool is_code_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kU8:
    case Dtype::kI8:
    case Dtype::kI16:
    case Dtype::kU16:
    case Dtype::kI32:
    case Dtype::kU32:
    case Dtype::kF4:
    case Dtype::kF6E2M3:
    case Dtype::kF6E3M2:
      return true;
    default:
      return false;
  }
}

bool is_layer_scale(CompanionRole role) {
  return role == CompanionRole::kActivation || role == CompanionRole::kPreQuantScale ||
         role == CompanionRole::kCache;
}

}  // namespace

WeightFinder::WeightFinder(const Checkpoint& checkpoint)
    : checkpoint_(checkpoint), places_(checkpoint.tensors().size(), Place::kParameter) {}

Result<WeightTable> WeightFinder::find() {
  TP_RETURN_IF_ERROR(read_metadata());
  TP_RETURN_IF_ERROR(apply_comfy_layers());
  TP_RETURN_IF_ERROR(refuse_packed());
  TP_RETURN_IF_ERROR(place_companions());
  TP_RETURN_IF_ERROR(check_unscaled());
  TP_RETURN_IF_ERROR(check_unknown_companions());
  TP_RETURN_IF_ERROR(check_integers());
  collect();
  TP_RETURN_IF_ERROR(warn_of_special_scales(checkpoint_, table_));
  return std::move(table_);
}

Dtype WeightFinder::payload_dtype(std::size_t tensor_index) const {
  const auto other = payload_dtypes_.find(tensor_index);
  return other == payload_dtypes_.end() ? checkpoint_.tensors()[tensor_index].dtype : other->second;
}

std::string WeightFinder::name_of(std::size_t tensor_index) const {
  return printable(checkpoint_.tensors()[tensor_index].name);
}

Result<void> WeightFinder::read_metadata() {
  TP_ASSIGN_OR_RETURN(config_, read_quantization_config(checkpoint_));
  TP_ASSIGN_OR_RETURN(comfy_, read_comfy_layers(checkpoint_));
  TP_ASSIGN_OR_RETURN(table_.aliases, find_tied_names(checkpoint_));
  hints_ = {.tiles = config_.tiles,
            .tiles_only = config_.tiles_only,
            .stack_scales_are_last_axis = config_.method == "fbgemm_fp8"};
  table_.warnings = comfy_.warnings;
  std::ranges::for_each(comfy_.blobs, [this](std::size_t blob) { ignore(blob); });
  return {};
}

Result<void> WeightFinder::apply_comfy_layers() {
  std::vector<std::pair<std::size_t, ComfyLayer>> layers(comfy_.by_weight.begin(),
                                                         comfy_.by_weight.end());
  std::ranges::sort(layers, {}, &std::pair<std::size_t, ComfyLayer>::first);
  for (const auto& [weight, layer] : layers) {
    const bool is_e5m2 = layer.format == "float8_e5m2";
    if (!is_e5m2 && layer.format != "float8_e4m3fn") {
      return std::unexpected(unsupported(fmt::format(
          "weight {} is stored in ComfyUI format \"{}\"{}, which is not supported", name_of(weight),
          printable(layer.format), layer.is_rotated ? " with convrot" : "")));
    }
    if (checkpoint_.tensors()[weight].dtype == Dtype::kU8) {
      payload_dtypes_.insert({weight, is_e5m2 ? Dtype::kF8E5M2 : Dtype::kF8E4M3});
    }
  }
  for (std::size_t index = 0; index < places_.size(); ++index) {
    has_quantized_ = has_quantized_ || is_fp8(payload_dtype(index));
  }
  if (config_.defect.empty()) {
    return {};
  }
  if (has_quantized_) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, fmt::format("{}: {}", config_.source, config_.defect))
            .with_reason("bad_quant_metadata"));
  }
  table_.warnings.push_back(fmt::format("{} is of no use: {}", config_.source, config_.defect));
  return {};
}

Result<void> WeightFinder::refuse_packed() const {
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (const auto scheme = match_packed(checkpoint_, index, config_)) {
      return std::unexpected(
          unsupported(fmt::format("weight {} is stored as {}, which is not supported",
                                  printable(scheme->weight), scheme->name)));
    }
  }
  return {};
}

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

Result<void> WeightFinder::place_scale(std::size_t tensor_index, const Companion& companion) {
  const auto weight = checkpoint_.find(companion.weight);
  if (weight && is_fp8(payload_dtype(*weight))) {
    return pair(tensor_index, *weight);
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
                                            name_of(tensor_index), printable(companion.weight)));
    }
    return {};
  }
  if (is_code_dtype(payload_dtype(*weight))) {
    return std::unexpected(unsupported(
        fmt::format("weight {} is stored as {}, which is not supported", name_of(*weight),
                    integer_scheme(checkpoint_, *weight, tensor_index, config_))));
  }
  if (is_certain) {
    table_.warnings.push_back(fmt::format(
        "{} is kept as a parameter: {} beside it is not quantized"
        " ({})",
        name_of(tensor_index), name_of(*weight), dtype_name(checkpoint_.tensors()[*weight].dtype)));
  }
  return {};
}

Result<void> WeightFinder::pair(std::size_t scale_index, std::size_t weight_index) {
  const TensorRecord& scale = checkpoint_.tensors()[scale_index];
  const TensorRecord& weight = checkpoint_.tensors()[weight_index];
  if (!is_scale_dtype(scale.dtype) || (scale.dtype == Dtype::kU8 && !config_.exponent_scales)) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("scale {} of weight {} has dtype {}, which is none that scales have",
                          name_of(scale_index), name_of(weight_index), dtype_name(scale.dtype)))
            .with_reason("scale_dtype"));
  }
  const auto fit = fit_scale(weight.shape, scale.shape, hints_);
  if (!fit) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("scale {} {} does not fit its weight {} {}", name_of(scale_index),
                          to_string(scale.shape), name_of(weight_index), to_string(weight.shape)))
            .with_reason("scale_shape"));
  }
  const bool is_exponent = scale.dtype == Dtype::kF8E8M0 || scale.dtype == Dtype::kU8;
  const ScaleTransform transform = fit->is_cropped ? ScaleTransform::kCrop
                                   : is_exponent   ? ScaleTransform::kE8m0
                                                   : ScaleTransform::kWiden;
  const auto [other, is_new] = scales_.insert({weight_index,
                                               {.tensor_index = scale_index,
                                                .granularity = fit->granularity,
                                                .shape = fit->shape,
                                                .block_shape = fit->block_shape,
                                                .transform = transform}});
  if (!is_new) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("weight {} has two scales, {} and {}", name_of(weight_index),
                          name_of(other->second.tensor_index), name_of(scale_index)))
            .with_reason("scale_ambiguous"));
  }
  places_[scale_index] = Place::kScale;
  if (fit->is_cropped) {
    table_.warnings.push_back(
        fmt::format("scale {} {} is cut to {}: its weight {} {} has no more tiles",
                    name_of(scale_index), to_string(scale.shape), to_string(fit->shape),
                    name_of(weight_index), to_string(weight.shape)));
  }
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

Result<void> WeightFinder::check_unscaled() {
  std::vector<std::string_view> unscaled;
  for (std::size_t index = 0; index < places_.size(); ++index) {
    const TensorRecord& weight = checkpoint_.tensors()[index];
    if (places_[index] != Place::kParameter || !is_fp8(payload_dtype(index)) ||
        scales_.contains(index)) {
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
      return std::unexpected(
          unsupported(fmt::format("tensor {} belongs to the quantized weight {}, but its meaning "
                                  "is not known",
                                  name_of(index), name_of(*weight))));
    }
  }
  return {};
}

/// Where the configuration says that weights are quantized, matrices of small integers are codes
/// of a scheme that no rule above knew.
Result<void> WeightFinder::check_integers() const {
  for (std::size_t index = 0; config_.is_quantized() && index < places_.size(); ++index) {
    const TensorRecord& tensor = checkpoint_.tensors()[index];
    if (places_[index] == Place::kParameter && tensor.shape.size() >= 2 &&
        is_code_dtype(payload_dtype(index))) {
      return std::unexpected(unsupported(fmt::format(
          "tensor {} holds {} codes of {} (quant_method \"{}\"), which is not supported",
          name_of(index), dtype_name(tensor.dtype),
          config_.algorithm.empty() ? "a quantized weight" : printable(config_.algorithm),
          printable(config_.method))));
    }
  }
  return {};
}

void WeightFinder::collect() {
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (places_[index] == Place::kIgnored) {
      table_.ignored.push_back(index);
    } else if (places_[index] == Place::kParameter) {
      Weight weight{.name = checkpoint_.tensors()[index].name,
                    .tensor_index = index,
                    .dtype = payload_dtype(index),
                    .scale = std::nullopt};
      if (const auto scale = scales_.find(index); scale != scales_.end()) {
        weight.scale = std::move(scale->second);
      }
      table_.weights.push_back(std::move(weight));
    }
  }
  table_.formats = describe_formats(checkpoint_, table_.weights);
}

}  // namespace trash_panda::format
