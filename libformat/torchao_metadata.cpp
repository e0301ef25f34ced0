#include "torchao_metadata.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/base/file.h"

#include "companion_names.h"
#include "foreign_json.h"

namespace trash_panda::format {

namespace {

using nlohmann::json;

Error unreadable_metadata(const CheckpointFile& file, std::string_view what) {
  return Error(ErrorCode::kCorrupt, fmt::format("torchao's {} in __metadata__ of {} can't be read",
                                                excerpt(what), printable(file.name)))
      .with_reason("bad_quant_metadata");
}

/// `proj.weight` and "qdata" give `proj._weight_qdata`.
std::string part_name(std::string_view parameter, std::string_view part) {
  const SplitName name = split_name(parameter);
  return name.module.empty() ? fmt::format("_{}_{}", name.leaf, part)
                             : fmt::format("{}._{}_{}", name.module, name.leaf, part);
}

Result<std::size_t> find_part(const Checkpoint& checkpoint, std::string_view parameter,
                              std::string_view part) {
  const std::string name = part_name(parameter, part);
  const auto index = checkpoint.find(name);
  if (!index) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{}, a part of the quantized weight {}, is not in the checkpoint",
                          excerpt(name), excerpt(parameter)))
            .with_reason(part == "scale" ? "scale_missing" : "missing_tensor"));
  }
  return *index;
}

/// The block size [rows, columns] as a tile; one that spans the weight is told by the scale's
/// shape.
std::vector<TileShape> read_tiles(const json& description) {
  const auto data = description.find("_data");
  if (data == description.end() || !data->is_object()) {
    return {};
  }
  const auto size = data->find("block_size");
  if (size == data->end() || !size->is_array() || size->size() < 2) {
    return {};
  }
  const json& rows = (*size)[size->size() - 2];
  const json& columns = size->back();
  if (!rows.is_number_unsigned() || !columns.is_number_unsigned() || rows == 0 || columns == 0) {
    return {};
  }
  return {{rows.get<std::uint64_t>(), columns.get<std::uint64_t>()}};
}

/// @return Nothing for a plain tensor.
Result<std::optional<TorchaoWeight>> read_parameter(const Checkpoint& checkpoint,
                                                    const CheckpointFile& file,
                                                    const std::string& name) {
  const auto text = file.metadata.find(name);
  if (text == file.metadata.end()) {
    return std::nullopt;
  }
  const json description = parse_foreign_json(text->second);
  if (!description.is_object() || !description.contains("_type") ||
      !description["_type"].is_string()) {
    return std::unexpected(unreadable_metadata(file, name));
  }
  const std::string type = description["_type"];
  if (type == "Tensor") {
    return std::nullopt;
  }
  if (type != "Float8Tensor") {
    return std::unexpected(
        Error(ErrorCode::kUnsupported,
              fmt::format("weight {} is stored as torchao {}, which is not supported",
                          excerpt(name), excerpt(type)))
            .with_reason("unsupported_format")
            .with_hint("dequantize it with torchao, or use an fp8 or bf16 checkpoint"));
  }
  TorchaoWeight weight{
      .name = text->first, .payload = 0, .scale = 0, .tiles = read_tiles(description)};
  TP_ASSIGN_OR_RETURN(weight.payload, find_part(checkpoint, name, "qdata"));
  TP_ASSIGN_OR_RETURN(weight.scale, find_part(checkpoint, name, "scale"));
  return weight;
}

}  // namespace

Result<std::vector<TorchaoWeight>> read_torchao_metadata(const Checkpoint& checkpoint) {
  std::vector<TorchaoWeight> weights;
  for (const CheckpointFile& file : checkpoint.files()) {
    const auto text = file.metadata.find("tensor_names");
    if (text == file.metadata.end()) {
      continue;
    }
    const json names = parse_foreign_json(text->second);
    if (!names.is_array() || !std::ranges::all_of(names, &json::is_string)) {
      return std::unexpected(unreadable_metadata(file, "tensor_names"));
    }
    for (const json& name : names) {
      TP_ASSIGN_OR_RETURN(auto weight, read_parameter(checkpoint, file, name.get<std::string>()));
      if (weight) {
        weights.push_back(*std::move(weight));
      }
    }
  }
  return weights;
}

}  // namespace trash_panda::format
