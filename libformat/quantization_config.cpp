#include "quantization_config.h"

#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/printable.h"

#include "foreign_json.h"
#include "scale_fit.h"

namespace trash_panda::format {

namespace {

using nlohmann::json;

/// Tile of every fp8 kernel that names none: DeepSeek's, which the others took over.
constexpr TileShape kUnstatedTile{128, 128};

const json* member(const json& object, const char* key) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

/// Compared with known names and quoted in messages, so that its first bytes will do.
std::string text_member(const json& object, const char* key) {
  const json* value = member(object, key);
  return value != nullptr && value->is_string() ? excerpt(value->get_ref<const std::string&>())
                                                : std::string();
}

std::optional<std::uint64_t> positive(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() == 0) {
    return std::nullopt;
  }
  return value.get<std::uint64_t>();
}

/// "128x128", as old compressed-tensors files spell a block structure.
std::optional<TileShape> parse_tile_text(std::string_view text) {
  TileShape tile{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto rows = std::from_chars(begin, end, tile.rows);
  if (rows.ec != std::errc() || rows.ptr == end || *rows.ptr != 'x') {
    return std::nullopt;
  }
  const auto columns = std::from_chars(rows.ptr + 1, end, tile.columns);
  if (columns.ec != std::errc() || columns.ptr != end || tile.rows == 0 || tile.columns == 0) {
    return std::nullopt;
  }
  return tile;
}

std::optional<TileShape> parse_tile(const json& value) {
  if (value.is_string()) {
    return parse_tile_text(value.get_ref<const std::string&>());
  }
  if (!value.is_array() || value.size() != 2) {
    return std::nullopt;
  }
  const auto rows = positive(value[0]);
  const auto columns = positive(value[1]);
  if (!rows || !columns) {
    return std::nullopt;
  }
  return TileShape{*rows, *columns};
}

std::string not_a_tile(std::string_view key, const json& value) {
  return fmt::format("{} {} is not two positive numbers", key,
                     excerpt(value.dump(-1, ' ', false, json::error_handler_t::replace)));
}

void read_fine_grained_fp8(const json& settings, QuantizationConfig& config) {
  const json* tile = member(settings, "weight_block_size");
  if (tile == nullptr) {
    return;
  }
  if (const auto parsed = parse_tile(*tile)) {
    config.tiles.push_back(*parsed);
    config.tiles_only = true;
  } else {
    config.defect = not_a_tile("weight_block_size", *tile);
  }
}

/// One `config_groups` entry's `weights`. @return Whether its scales are tiles.
bool read_group_weights(const json& weights, QuantizationConfig& config) {
  const std::string strategy = text_member(weights, "strategy");
  const std::string scale_dtype = text_member(weights, "scale_dtype");
  config.exponent_scales |= scale_dtype == "torch.uint8" || scale_dtype == "torch.float8_e8m0fnu";
  if (strategy == "block") {
    const json* structure = member(weights, "block_structure");
    const auto tile = structure == nullptr ? kUnstatedTile : parse_tile(*structure);
    if (!tile) {
      config.defect = not_a_tile("block_structure", *structure);
      return true;
    }
    config.tiles.push_back(*tile);
    return true;
  }
  if (const json* group = member(weights, "group_size")) {
    if (const auto size = positive(*group)) {
      config.tiles.push_back({1, *size});
    }
    return true;
  }
  return false;
}

void read_config_groups(const json& settings, QuantizationConfig& config) {
  config.exponent_scales |= config.algorithm.starts_with("mx");
  const json* groups = member(settings, "config_groups");
  if (groups == nullptr || !groups->is_object()) {
    return;
  }
  bool tiles_only = true;
  for (const json& group : *groups) {
    if (const json* weights = member(group, "weights")) {
      tiles_only = read_group_weights(*weights, config) && tiles_only;
    }
  }
  config.tiles_only = tiles_only && !config.tiles.empty();
}

void read_modelopt(const json& settings, QuantizationConfig& config) {
  read_config_groups(settings, config);
  config.tiles_only = false;
  if (config.algorithm == "FP8_PB_WO") {
    config.tiles.push_back(kUnstatedTile);
  } else if (config.algorithm.starts_with("MXFP8")) {
    config.tiles.push_back({1, kMxGroupSize});
    config.exponent_scales = true;
  }
}

/// `settings` is the quantization_config object, whatever file it stood in.
void read_settings(const json& settings, QuantizationConfig& config) {
  config.method = text_member(settings, "quant_method");
  config.algorithm = text_member(settings, "quant_algo");
  if (config.algorithm.empty()) {
    config.algorithm = text_member(settings, "format");
  }
  if (config.method.empty() && !config.algorithm.empty()) {
    config.method =
        member(settings, "config_groups") != nullptr ? "compressed-tensors" : "modelopt";
  }
  config.exponent_scales = text_member(settings, "scale_fmt") == "ue8m0";
  if (config.method == "compressed-tensors") {
    read_config_groups(settings, config);
  } else if (config.method.starts_with("modelopt")) {
    read_modelopt(settings, config);
  } else {
    read_fine_grained_fp8(settings, config);
  }
}

/// The quantization_config of config.json; older compressed-tensors files call it
/// compression_config, composite models keep it in the part that it is about.
const json* find_settings(const json& root) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (const json* settings = member(root, key); settings != nullptr && settings->is_object()) {
      return settings;
    }
  }
  if (!root.is_object()) {
    return nullptr;
  }
  for (const json& part : root) {
    const json* settings = member(part, "quantization_config");
    if (settings != nullptr && settings->is_object()) {
      return settings;
    }
  }
  return nullptr;
}

}  // namespace

Result<QuantizationConfig> read_quantization_config(const Checkpoint& checkpoint) {
  QuantizationConfig config;
  for (const char* file : {"config.json", "hf_quant_config.json"}) {
    TP_ASSIGN_OR_RETURN(const std::string text, checkpoint.side_file(file));
    if (text.empty()) {
      continue;
    }
    const json root = parse_foreign_json(text);
    if (root.is_discarded()) {
      config.source = file;
      config.defect = fmt::format("is not JSON, or nested deeper than {} levels", kJsonDepthMax);
      return config;
    }
    const json* settings = std::string_view(file) == "config.json" ? find_settings(root)
                                                                   : member(root, "quantization");
    if (settings != nullptr) {
      config.source = file;
      read_settings(*settings, config);
    }
    if (config.is_quantized()) {
      return config;
    }
  }
  return config;
}

}  // namespace trash_panda::format
