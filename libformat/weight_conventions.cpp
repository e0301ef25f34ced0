#include <map>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "packed_schemes.h"
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

Result<void> WeightFinder::apply_comfy_layers() {
  std::map<std::size_t, ComfyLayer> in_file_order(comfy_.by_weight.begin(), comfy_.by_weight.end());
  for (const auto& [weight, layer] : in_file_order) {
    const auto fp8 = fp8_of_comfy(layer.format);
    if (!fp8) {
      return std::unexpected(unsupported_format(fmt::format(
          "weight {} is stored in ComfyUI format \"{}\"{}, which is not supported", name_of(weight),
          printable(layer.format), layer.is_rotated ? " with convrot" : "")));
    }
    if (checkpoint_.tensors()[weight].dtype == Dtype::kU8) {
      payload_dtypes_.insert({weight, *fp8});
    }
    if (layer.format == kComfyMxfp8) {
      TP_RETURN_IF_ERROR(pair_swizzled(weight));
    }
  }
  return {};
}

Result<void> WeightFinder::apply_torchao() {
  for (const TorchaoWeight& weight : torchao_) {
    const Dtype dtype = checkpoint_.tensors()[weight.payload].dtype;
    if (!is_fp8(dtype)) {
      return std::unexpected(unsupported_format(
          fmt::format("weight {} is stored as torchao {} data, which is not supported",
                      printable(weight.name), dtype_name(dtype))));
    }
    ScaleHints hints = hints_;
    hints.tiles = weight.tiles;
    hints.tiles_only = false;
    TP_RETURN_IF_ERROR(pair(weight.scale, weight.payload, hints));
    names_.insert({weight.payload, weight.name});
  }
  return {};
}

Result<void> WeightFinder::refuse_packed() const {
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (const auto scheme = match_packed(checkpoint_, index, config_)) {
      return std::unexpected(
          unsupported_format(fmt::format("weight {} is stored as {}, which is not supported",
                                         printable(scheme->weight), scheme->name)));
    }
  }
  return {};
}

}  // namespace trash_panda::format
