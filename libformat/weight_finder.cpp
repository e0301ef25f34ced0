#include "weight_finder.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "scale_remarks.h"
#include "weight_formats.h"
#include "weight_ties.h"

namespace trash_panda::format {

Error unsupported_format(std::string message) {
  return Error(ErrorCode::kUnsupported, std::move(message))
      .with_reason("unsupported_format")
      .with_hint("dequantize it with the library that made it, or use an fp8 or bf16 checkpoint");
}

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

WeightFinder::WeightFinder(const Checkpoint& checkpoint)
    : checkpoint_(checkpoint),
      places_(checkpoint.tensors().size(), Place::kParameter),
      scale_of_(checkpoint.tensors().size(), kNoScale) {}

Result<WeightTable> WeightFinder::find() {
  TP_RETURN_IF_ERROR(read_metadata());
  TP_RETURN_IF_ERROR(apply_comfy_layers());
  TP_RETURN_IF_ERROR(apply_torchao());
  TP_RETURN_IF_ERROR(find_quantized());
  TP_RETURN_IF_ERROR(refuse_packed());
  TP_RETURN_IF_ERROR(refuse_scaled_codes());
  TP_RETURN_IF_ERROR(place_companions());
  TP_RETURN_IF_ERROR(check_unknown_companions(true));  // Or they would be taken for weights.
  TP_RETURN_IF_ERROR(check_unscaled());
  TP_RETURN_IF_ERROR(check_integers());
  TP_RETURN_IF_ERROR(check_unknown_companions(false));
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
  TP_ASSIGN_OR_RETURN(torchao_, read_torchao_metadata(checkpoint_));
  hints_ = {.tiles = config_.tiles,
            .tiles_only = config_.tiles_only,
            .stack_scales_are_last_axis = config_.method == "fbgemm_fp8"};
  table_.warnings = comfy_.warnings;
  std::ranges::for_each(comfy_.blobs, [this](std::size_t blob) { ignore(blob); });
  return {};
}

Result<void> WeightFinder::find_quantized() {
  for (std::size_t index = 0; index < places_.size() && !has_quantized_; ++index) {
    has_quantized_ = is_fp8(payload_dtype(index));
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

void WeightFinder::collect() {
  table_.weights.reserve(places_.size() - scales_.size());
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (places_[index] == Place::kIgnored) {
      table_.ignored.push_back(index);
    } else if (places_[index] == Place::kParameter) {
      const auto name = names_.find(index);
      const std::size_t scale = scale_of_[index];
      table_.weights.push_back(
          {.name = name == names_.end() ? checkpoint_.tensors()[index].name : name->second,
           .tensor_index = index,
           .dtype = payload_dtype(index),
           .scale = scale == kNoScale ? std::nullopt : std::optional(std::move(scales_[scale]))});
    }
  }
  merge_tied_weights(checkpoint_, table_);
  table_.formats = describe_formats(checkpoint_, table_.weights);
}

}  // namespace trash_panda::format
