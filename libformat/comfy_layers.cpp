#include "comfy_layers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/file.h"

#include "foreign_json.h"

namespace trash_panda::format {

namespace {

using nlohmann::json;

constexpr std::string_view kBlobSuffix = ".comfy_quant";
constexpr std::string_view kMetadataKey = "_quantization_metadata";
/// Blobs are a few dozen bytes; what is longer is something else.
constexpr std::uint64_t kBlobBytesMax = 1 << 20;

Error bad_metadata(std::string message) {
  return Error(ErrorCode::kCorrupt, std::move(message)).with_reason("bad_quant_metadata");
}

/// Options that are about how a layer is computed, or say what the tensors say too.
constexpr std::array<std::string_view, 4> kHarmlessOptions{"format", "full_precision_matrix_mult",
                                                           "orig_dtype", "orig_shape"};

/// As Python tells true from false.
bool is_truthy(const json& value) {
  if (value.is_structured() || value.is_null()) {
    return !value.empty();
  }
  if (value.is_string()) {
    return !value.get_ref<const std::string&>().empty();
  }
  return value != false && value != 0;
}

/// The option of a layer that the stored values can't be read without. Of options that nobody here
/// knows, those that are switched on count: a text or a number describes, or belongs to a switch.
std::string find_option(const json& layer) {
  for (const auto& [name, value] : layer.items()) {
    const bool is_harmless = std::ranges::find(kHarmlessOptions, name) != kHarmlessOptions.end();
    if (!is_harmless && (name == "convrot" ? is_truthy(value) : value == true)) {
      return name;
    }
  }
  return {};
}

/// {"format": "…", "convrot": true} or, in the file's metadata, a bare "format".
std::optional<ComfyLayer> parse_layer(const json& value, std::string source) {
  if (value.is_string()) {
    return ComfyLayer{
        .source = std::move(source), .format = value.get<std::string>(), .option = {}};
  }
  if (!value.is_object()) {
    return std::nullopt;
  }
  const auto format = value.find("format");
  if (format == value.end() || !format->is_string()) {
    return std::nullopt;
  }
  return ComfyLayer{.source = std::move(source),
                    .format = format->get<std::string>(),
                    .option = find_option(value)};
}

Result<ComfyLayer> read_blob(const Checkpoint& checkpoint, std::size_t index) {
  const TensorRecord& blob = checkpoint.tensors()[index];
  if (blob.dtype != Dtype::kU8 || blob.size_bytes > kBlobBytesMax) {
    return std::unexpected(bad_metadata(
        fmt::format("tensor {} should be a short JSON text in U8, but is {} {}",
                    printable(blob.name), dtype_name(blob.dtype), to_string(blob.shape))));
  }
  std::string text(blob.size_bytes, '\0');
  TP_RETURN_IF_ERROR(checkpoint.read_tensor(index, std::as_writable_bytes(std::span(text))));
  const json value = parse_foreign_json(text);
  const auto layer = value.is_object() ? parse_layer(value, excerpt(blob.name)) : std::nullopt;
  if (!layer) {
    return std::unexpected(bad_metadata(
        fmt::format("tensor {} is no JSON object with a \"format\"", printable(blob.name))));
  }
  return *layer;
}

/// Sorted, so that warnings repeat.
using LayersByName = std::map<std::string, ComfyLayer, std::less<>>;

Result<LayersByName> parse_metadata(const CheckpointFile& file, const std::string& text) {
  const json root = parse_foreign_json(text);
  const auto where = [&] {
    return fmt::format("{} in __metadata__ of {}", kMetadataKey, printable(file.name));
  };
  if (!root.is_object() || !root.contains("layers") || !root["layers"].is_object()) {
    return std::unexpected(
        bad_metadata(fmt::format("{} is no JSON object with \"layers\"", where())));
  }
  LayersByName layers;
  for (const auto& [name, value] : root["layers"].items()) {
    auto layer = parse_layer(value, where());
    if (!layer) {
      return std::unexpected(
          bad_metadata(fmt::format("layer {} of {} has no \"format\"", excerpt(name), where())));
    }
    layers.insert_or_assign(name, *std::move(layer));
  }
  return layers;
}

/// The name without its first component; empty when it has one only.
std::string_view drop_component(std::string_view name) {
  const std::size_t dot = name.find('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
}

std::optional<std::size_t> find_weight(const Checkpoint& checkpoint, std::string_view module) {
  return checkpoint.find(fmt::format("{}.weight", module));
}

/// Adds what a file's metadata say about a weight to what its blob said.
/// @retval kCorrupt  They do not agree.
Result<void> add_layer(const Checkpoint& checkpoint, std::size_t weight, const ComfyLayer& layer,
                       ComfyLayers& result) {
  const auto [known, is_new] = result.by_weight.insert({weight, layer});
  const ComfyLayer& first = known->second;
  if (is_new || (first.format == layer.format && first.option == layer.option)) {
    return {};
  }
  const auto stated = [](const ComfyLayer& said) {
    return fmt::format("\"{}\"{}{}", excerpt(said.format), said.option.empty() ? "" : " with ",
                       excerpt(said.option));
  };
  return std::unexpected(bad_metadata(
      fmt::format("weight {} is {} by {}, but {} by {}", excerpt(checkpoint.tensors()[weight].name),
                  stated(first), first.source, stated(layer), layer.source)));
}

/// Matches by the exact name, else by names in the metadata that have a prefix too many, else by
/// tensors that have one.
Result<void> match_layers(const Checkpoint& checkpoint, LayersByName layers, ComfyLayers& result) {
  for (auto layer = layers.begin(); layer != layers.end();) {
    std::optional<std::size_t> weight;
    for (std::string_view name = layer->first; !name.empty() && !weight;
         name = drop_component(name)) {
      weight = find_weight(checkpoint, name);
    }
    if (weight) {
      TP_RETURN_IF_ERROR(add_layer(checkpoint, *weight, layer->second, result));
      layer = layers.erase(layer);
    } else {
      ++layer;
    }
  }
  if (layers.empty()) {
    return {};
  }
  constexpr std::string_view kWeight = ".weight";
  std::unordered_set<std::string_view> matched;
  for (std::size_t index = 0; index < checkpoint.tensors().size(); ++index) {
    std::string_view name = checkpoint.tensors()[index].name;
    if (!name.ends_with(kWeight)) {
      continue;
    }
    for (name.remove_suffix(kWeight.size()); !name.empty(); name = drop_component(name)) {
      if (const auto found = layers.find(name); found != layers.end()) {
        TP_RETURN_IF_ERROR(add_layer(checkpoint, index, found->second, result));
        matched.insert(found->first);
        break;
      }
    }
  }
  for (const auto& [name, layer] : layers) {
    if (!matched.contains(name)) {
      result.warnings.push_back(fmt::format("{} lists layer {} ({}), which has no weight here",
                                            kMetadataKey, excerpt(name), excerpt(layer.format)));
    }
  }
  return {};
}

}  // namespace

Result<ComfyLayers> read_comfy_layers(const Checkpoint& checkpoint) {
  ComfyLayers result;
  for (std::size_t index = 0; index < checkpoint.tensors().size(); ++index) {
    std::string_view name = checkpoint.tensors()[index].name;
    if (!name.ends_with(kBlobSuffix)) {
      continue;
    }
    TP_ASSIGN_OR_RETURN(ComfyLayer layer, read_blob(checkpoint, index));
    result.blobs.push_back(index);
    name.remove_suffix(kBlobSuffix.size());
    if (const auto weight = find_weight(checkpoint, name)) {
      result.by_weight.insert_or_assign(*weight, std::move(layer));
    } else {
      result.warnings.push_back(fmt::format("{}{} describes a layer that has no weight here",
                                            printable(name), kBlobSuffix));
    }
  }
  for (const CheckpointFile& file : checkpoint.files()) {
    const auto text = file.metadata.find(std::string(kMetadataKey));
    if (text != file.metadata.end()) {
      TP_ASSIGN_OR_RETURN(LayersByName layers, parse_metadata(file, text->second));
      TP_RETURN_IF_ERROR(match_layers(checkpoint, std::move(layers), result));
    }
  }
  return result;
}

}  // namespace trash_panda::format
