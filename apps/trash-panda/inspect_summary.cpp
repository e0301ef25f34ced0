#include "inspect_summary.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace trash_panda::cli {

namespace {

void add_extent(InspectSummary& summary, const format::PackedExtent& extent) {
  std::uint64_t tensor_bytes = 0;
  for (const format::PackedTensor& tensor : extent.tensors) {
    tensor_bytes += tensor.size_bytes;
    summary.tensors.push_back({.name = tensor.name,
                               .dtype = tensor.dtype,
                               .shape = tensor.shape,
                               .size_bytes = tensor.size_bytes,
                               .offset_bytes = extent.offset_bytes + tensor.offset_bytes,
                               .file_index = extent.shard_index});
  }
  if (extent.tier == format::Tier::kBase) {
    summary.outside_count += extent.tensors.size();
    summary.outside_bytes += tensor_bytes;
    return;
  }
  const std::string_view prefix = group_prefix(extent.name);
  auto group = std::ranges::find(summary.groups, prefix, &InspectedGroup::prefix);
  if (group == summary.groups.end()) {
    summary.groups.push_back({.prefix = std::string(prefix)});
    group = std::prev(summary.groups.end());
  }
  group->add_block(tensor_bytes);
}

}  // namespace

void InspectedGroup::add_block(std::uint64_t block_bytes) {
  bytes_min = count == 0 ? block_bytes : std::min(bytes_min, block_bytes);
  bytes_max = std::max(bytes_max, block_bytes);
  bytes_total += block_bytes;
  ++count;
}

std::uint64_t InspectSummary::total_bytes() const {
  std::uint64_t bytes = 0;
  for (const InspectedTensor& tensor : tensors) {
    bytes += tensor.size_bytes;
  }
  return bytes;
}

InspectSummary summarize_checkpoint(const LoadedModel& model) {
  const format::Checkpoint& checkpoint = model.checkpoint;
  InspectSummary summary{.path = checkpoint.path(),
                         .fingerprint = checkpoint.fingerprint(),
                         .kind = "checkpoint",
                         .architecture = architecture_of(checkpoint),
                         .formats = model.weights.formats,
                         .warnings = model.warnings,
                         .files = {},
                         .tensors = {},
                         .groups = {}};
  for (const format::CheckpointFile& file : checkpoint.files()) {
    summary.files.push_back({.name = file.name,
                             .path = file.path,
                             .size_bytes = file.size_bytes,
                             .header_bytes = file.data_offset_bytes});
  }
  summary.tensors.reserve(checkpoint.tensors().size());
  for (const format::TensorRecord& tensor : checkpoint.tensors()) {
    summary.tensors.push_back({.name = tensor.name,
                               .dtype = tensor.dtype,
                               .shape = tensor.shape,
                               .size_bytes = tensor.size_bytes,
                               .offset_bytes = tensor.offset_bytes,
                               .file_index = tensor.file_index});
  }
  for (const plan::BlockGroup& group : model.blocks.groups) {
    InspectedGroup& inspected = summary.groups.emplace_back();
    inspected.prefix = group.prefix;
    for (const plan::Block& block : group.blocks) {
      inspected.add_block(block.stored_bytes);
    }
  }
  summary.outside_count = model.blocks.outside.size();
  for (const std::size_t index : model.blocks.outside) {
    summary.outside_bytes += checkpoint.tensors()[index].size_bytes;
  }
  return summary;
}

InspectSummary summarize_pack(const std::filesystem::path& path, const format::Manifest& manifest) {
  InspectSummary summary{.path = path,
                         .fingerprint = manifest.source_fingerprint,
                         .kind = "pack",
                         .architecture = {},
                         .formats = {},
                         .warnings = {},
                         .files = {},
                         .tensors = {},
                         .groups = {}};
  for (const format::PackedShard& shard : manifest.shards) {
    summary.files.push_back({.name = shard.name,
                             .path = path / shard.name,
                             .size_bytes = shard.size_bytes,
                             .header_bytes = shard.header_bytes});
  }
  for (const format::PackedExtent& extent : manifest.extents) {
    add_extent(summary, extent);
  }
  return summary;
}

std::string architecture_of(const format::Checkpoint& checkpoint) {
  const Result<std::string> text = checkpoint.side_file("config.json");
  if (!text) {
    return {};
  }
  const nlohmann::json config = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return {};
  }
  // transformers and diffusers, in this order.
  const auto architectures = config.find("architectures");
  if (architectures != config.end() && architectures->is_array() && !architectures->empty() &&
      architectures->front().is_string()) {
    return architectures->front().get<std::string>();
  }
  const auto class_name = config.find("_class_name");
  return class_name != config.end() && class_name->is_string() ? class_name->get<std::string>()
                                                               : std::string();
}

}  // namespace trash_panda::cli
