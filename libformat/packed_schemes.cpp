#include "packed_schemes.h"

#include <array>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "companion_names.h"

namespace trash_panda::format {

namespace {

bool is_integer(Dtype dtype) {
  return dtype == Dtype::kU8 || dtype == Dtype::kI8 || dtype == Dtype::kI32 ||
         dtype == Dtype::kU32 || dtype == Dtype::kI16 || dtype == Dtype::kI64;
}

std::optional<std::size_t> find_companion(const Checkpoint& checkpoint, std::string_view module,
                                          std::string_view leaf) {
  return checkpoint.find(fmt::format("{}.{}", module, leaf));
}

std::string weight_of(std::string_view module) {
  return fmt::format("{}.weight", module);
}

/// `X.weight.absmax`, `X.weight.quant_map`, `X.weight.quant_state.bitsandbytes__nf4`: the parent
/// is itself a tensor, which no ordinary parameter's is.
std::optional<PackedScheme> match_bitsandbytes(const Checkpoint& checkpoint, SplitName name) {
  const std::string_view parent =
      split_name(name.module).leaf == "quant_state" ? split_name(name.module).module : name.module;
  const bool is_part = name.leaf == "absmax" || name.leaf == "quant_map" ||
                       name.leaf == "nested_absmax" || name.leaf == "nested_quant_map" ||
                       parent.size() != name.module.size();
  const auto codes = is_part ? checkpoint.find(parent) : std::nullopt;
  if (!codes) {
    return std::nullopt;
  }
  return PackedScheme{
      .name = "bitsandbytes 4-bit", .weight = std::string(parent), .payload = *codes};
}

/// gpt-oss: `P_blocks` and `P_scales`, both U8.
std::optional<PackedScheme> match_blocks(const Checkpoint& checkpoint, std::size_t tensor_index) {
  const TensorRecord& tensor = checkpoint.tensors()[tensor_index];
  constexpr std::string_view kBlocks = "_blocks";
  if (tensor.dtype != Dtype::kU8 || !tensor.name.ends_with(kBlocks)) {
    return std::nullopt;
  }
  const std::string parameter(tensor.name.substr(0, tensor.name.size() - kBlocks.size()));
  const auto scales = checkpoint.find(parameter + "_scales");
  if (!scales || checkpoint.tensors()[*scales].dtype != Dtype::kU8) {
    return std::nullopt;
  }
  return PackedScheme{.name = "MXFP4 (gpt-oss)", .weight = parameter, .payload = tensor_index};
}

/// Schemes that are told by the names of a weight's parts in one module, the codes first.
struct PartNames {
  std::string_view scheme;
  std::string_view codes;
  std::string_view companion;
};
constexpr std::array kPartNames = {
    PartNames{"MLX quantized integers", "weight", "scales"},
    PartNames{"HQQ", "W_q", "scale"},
    PartNames{"AQLM", "codes", "codebooks"},
    PartNames{"optimum-quanto codes", "_data", "_scale"},
};

/// optimum-quanto's parts are below the name of the weight, those of the others beside it.
std::optional<PackedScheme> match_parts(const Checkpoint& checkpoint, std::size_t tensor_index,
                                        SplitName name) {
  const Dtype dtype = checkpoint.tensors()[tensor_index].dtype;
  for (const PartNames& parts : kPartNames) {
    if (name.leaf == parts.codes &&
        (is_integer(dtype) || (name.leaf == "_data" && is_fp8(dtype))) &&
        find_companion(checkpoint, name.module, parts.companion)) {
      return PackedScheme{
          .name = std::string(parts.scheme),
          .weight = name.leaf == "_data" ? std::string(name.module) : weight_of(name.module),
          .payload = tensor_index};
    }
  }
  return std::nullopt;
}

std::string qweight_scheme(const Checkpoint& checkpoint, std::string_view module,
                           const QuantizationConfig& config) {
  if (config.method == "awq") {
    return "AWQ";
  }
  if (config.is_quantized() && config.method != "gptq") {
    return fmt::format("{} codes", printable(config.method));
  }
  return config.method == "gptq" || find_companion(checkpoint, module, "g_idx") ? "GPTQ"
                                                                                : "GPTQ or AWQ";
}

std::string weight_packed_scheme(const Checkpoint& checkpoint, std::string_view module,
                                 Dtype dtype) {
  if (dtype != Dtype::kU8) {
    return "compressed-tensors pack-quantized integers";
  }
  return find_companion(checkpoint, module, "weight_global_scale")
             ? "NVFP4 (compressed-tensors nvfp4-pack-quantized)"
             : "MXFP4 (compressed-tensors mxfp4-pack-quantized)";
}

}  // namespace

std::optional<PackedScheme> match_packed(const Checkpoint& checkpoint, std::size_t tensor_index,
                                         const QuantizationConfig& config) {
  const TensorRecord& tensor = checkpoint.tensors()[tensor_index];
  const SplitName name = split_name(tensor.name);
  if (name.leaf == "qweight" && is_integer(tensor.dtype)) {
    return PackedScheme{.name = qweight_scheme(checkpoint, name.module, config),
                        .weight = weight_of(name.module),
                        .payload = tensor_index};
  }
  if (name.leaf == "weight_packed" && is_integer(tensor.dtype)) {
    return PackedScheme{.name = weight_packed_scheme(checkpoint, name.module, tensor.dtype),
                        .weight = weight_of(name.module),
                        .payload = tensor_index};
  }
  if (name.leaf == "SCB" || name.leaf == "weight_scale_2") {
    if (const auto codes = find_companion(checkpoint, name.module, "weight")) {
      return PackedScheme{.name = name.leaf == "SCB" ? "bitsandbytes 8-bit" : "NVFP4 (ModelOpt)",
                          .weight = weight_of(name.module),
                          .payload = *codes};
    }
  }
  if (auto scheme = match_parts(checkpoint, tensor_index, name)) {
    return scheme;
  }
  if (auto scheme = match_blocks(checkpoint, tensor_index)) {
    return scheme;
  }
  return match_bitsandbytes(checkpoint, name);
}

std::string integer_scheme(const Checkpoint& checkpoint, std::size_t weight_index,
                           std::size_t scale_index, const QuantizationConfig& config) {
  const Dtype weight = checkpoint.tensors()[weight_index].dtype;
  const Dtype scale = checkpoint.tensors()[scale_index].dtype;
  if ((weight == Dtype::kI8 || weight == Dtype::kU8) && scale == Dtype::kF8E8M0) {
    return "MXFP4 (two codes a byte)";
  }
  if (weight == Dtype::kU8 && is_fp8(scale)) {
    return "NVFP4";
  }
  if (config.is_quantized()) {
    return fmt::format("{} {}", config.method,
                       config.algorithm.empty() ? dtype_name(weight) : config.algorithm);
  }
  return fmt::format("{} codes with a scale", dtype_name(weight));
}

}  // namespace trash_panda::format
