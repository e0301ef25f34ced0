#include "inspect_summary.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <tuple>
#include <utility>

namespace trash_panda::cli {

namespace {

std::string_view leaf_of(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0: all of it.
}

/// Descriptions repeat: a checkpoint has thousands of weights, and a few layouts.
class LayoutFinder {
 public:
  explicit LayoutFinder(const format::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const StorageLayout& find(const format::Weight& weight) {
    const auto granularity = weight.scale ? std::optional(weight.scale->granularity) : std::nullopt;
    const format::TensorRecord* scale =
        weight.scale ? &checkpoint_.tensors()[weight.scale->tensor_index] : nullptr;
    const format::GgmlType* ggml_type = checkpoint_.tensors()[weight.tensor_index].ggml_type;
    const Key key = {weight.dtype,
                     granularity,
                     weight.scale ? weight.scale->block_shape : format::Shape(),
                     scale != nullptr ? std::optional(scale->dtype) : std::nullopt,
                     scale != nullptr ? leaf_of(scale->name) : std::string_view(),
                     ggml_type};
    auto found = layouts_.find(key);
    if (found == layouts_.end()) {
      StorageLayout layout{
          .format = ggml_type != nullptr
                        ? std::string(ggml_type->name)
                        : format::storage_name(weight.dtype, granularity, std::get<2>(key)),
          .scale_dtype = scale != nullptr ? std::string(format::dtype_name(scale->dtype)) : "",
          .scale_leaf = std::string(std::get<4>(key))};
      found = layouts_.emplace(key, std::move(layout)).first;
    }
    return found->second;
  }

 private:
  using Key = std::tuple<format::Dtype, std::optional<format::Granularity>, format::Shape,
                         std::optional<format::Dtype>, std::string_view, const format::GgmlType*>;

  const format::Checkpoint& checkpoint_;
  std::map<Key, StorageLayout> layouts_;
};

/// Files of one checkpoint are of one format, by the names that indexes and folders may hold.
std::string_view file_format_of(const format::Checkpoint& checkpoint) {
  if (checkpoint.is_gguf()) {
    return "GGUF";
  }
  const bool is_torch = std::ranges::any_of(
      checkpoint.files(),
      [](const format::CheckpointFile& file) { return file.kind == format::FileKind::kTorch; });
  return is_torch ? "torch" : "safetensors";
}

void add_files(InspectSummary& summary, const format::Checkpoint& checkpoint) {
  for (const format::CheckpointFile& file : checkpoint.files()) {
    summary.files.push_back({.name = file.name,
                             .path = file.path,
                             .size_bytes = file.size_bytes,
                             .header_bytes = file.data_offset_bytes});
  }
}

void add_tensors(InspectSummary& summary, const format::Checkpoint& checkpoint) {
  summary.tensors.reserve(checkpoint.tensors().size());
  for (const format::TensorRecord& tensor : checkpoint.tensors()) {
    summary.tensors.push_back({.name = tensor.name,
                               .dtype = format::type_name(tensor),
                               .shape = tensor.shape,
                               .size_bytes = tensor.size_bytes,
                               .offset_bytes = tensor.offset_bytes,
                               .file_index = tensor.file_index,
                               .format = {},
                               .scale = {},
                               .block = {}});
  }
}

/// Tied tensors are other names for bytes that are counted once.
///
/// @return The group that each tensor is in, by its position; null outside of all.
std::vector<InspectedGroup*> add_groups(InspectSummary& summary, const plan::BlockMap& blocks,
                                        const std::vector<std::size_t>& tied) {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(summary.tensors.size());
  for (const InspectedTensor& tensor : summary.tensors) {
    bytes.push_back(tensor.size_bytes);
  }
  for (const std::size_t index : tied) {
    bytes[index] = 0;
  }
  std::vector<InspectedGroup*> group_of(summary.tensors.size(), nullptr);
  summary.groups.resize(blocks.groups.size());  // At once: pointers to them are kept.
  for (std::size_t i = 0; i < blocks.groups.size(); ++i) {
    InspectedGroup& group = summary.groups[i];
    group.prefix = blocks.groups[i].prefix;
    for (const plan::Block& block : blocks.groups[i].blocks) {
      std::uint64_t block_bytes = 0;
      for (const std::size_t tensor : block.tensors) {
        block_bytes += bytes[tensor];
        group_of[tensor] = &group;
        summary.tensors[tensor].block = block.name;
      }
      group.add_block(block_bytes);
    }
  }
  summary.outside_count = blocks.outside.size();
  for (const std::size_t index : blocks.outside) {
    summary.outside_bytes += bytes[index];
  }
  for (const std::size_t index : tied) {
    summary.outside_count -= group_of[index] == nullptr ? 1U : 0U;
  }
  return group_of;
}

void add_layout(LayoutTotals& totals, const StorageLayout& layout, std::uint64_t bytes) {
  LayoutTotal& total = totals[layout];
  ++total.tensor_count;
  total.bytes += bytes;
}

void add_weights(InspectSummary& summary, const LoadedModel& model,
                 const std::vector<InspectedGroup*>& group_of) {
  LayoutFinder layouts(model.checkpoint);
  for (const format::Weight& weight : model.weights.weights) {
    const StorageLayout& layout = layouts.find(weight);
    InspectedTensor& tensor = summary.tensors[weight.tensor_index];
    tensor.format = layout.format;
    InspectedGroup* group = group_of[weight.tensor_index];
    add_layout(group != nullptr ? group->layouts : summary.outside_layouts, layout,
               tensor.size_bytes);
    if (weight.scale) {
      InspectedTensor& scale = summary.tensors[weight.scale->tensor_index];
      scale.role = TensorRole::kScale;
      tensor.scale = scale.name;
      ++summary.scales.count;
      summary.scales.bytes += scale.size_bytes;
    }
  }
  for (const std::size_t index : model.weights.ignored) {
    summary.tensors[index].role = TensorRole::kLeftOut;
  }
}

/// To be called last: positions of tensors change.
void remove_tied(InspectSummary& summary, const std::vector<std::size_t>& tied) {
  std::vector<bool> is_tied(summary.tensors.size());
  for (const std::size_t index : tied) {
    is_tied[index] = true;
  }
  std::vector<InspectedTensor> kept;
  kept.reserve(is_tied.size() - tied.size());
  for (std::size_t index = 0; index < is_tied.size(); ++index) {
    if (!is_tied[index]) {
      kept.push_back(std::move(summary.tensors[index]));
    }
  }
  summary.tensors = std::move(kept);
}

void set_special_scales(InspectSummary& summary, const format::Checkpoint& checkpoint,
                        const std::vector<format::SpecialScale>& special) {
  summary.scales.is_checked = true;
  for (const format::SpecialScale& scale : special) {
    summary.scales.special.push_back(
        {.name = checkpoint.tensors()[scale.tensor_index].name, .kind = scale.kind});
  }
}

/// The manifest says what was stored, in words of its own.
StorageLayout packed_layout(const format::PackedTensor& tensor,
                            const std::map<std::string_view, format::Dtype>& scale_dtypes) {
  if (!tensor.scale) {
    return {.format = format::storage_name(tensor.dtype, std::nullopt, {}),
            .scale_dtype = {},
            .scale_leaf = {}};
  }
  return {.format = format::storage_name(tensor.dtype, tensor.scale->granularity,
                                         tensor.scale->block_shape),
          .scale_dtype = std::string(format::dtype_name(scale_dtypes.at(tensor.name + "_scale"))),
          .scale_leaf = std::string(leaf_of(tensor.name)) + "_scale"};
}

void add_packed_tensor(InspectSummary& summary, const format::PackedExtent& extent,
                       const format::PackedTensor& tensor,
                       const std::map<std::string_view, format::Dtype>& scale_dtypes,
                       LayoutTotals& layouts) {
  const bool is_block = extent.tier != format::Tier::kBase;
  InspectedTensor& inspected = summary.tensors.emplace_back();
  inspected = {.name = tensor.name,
               .dtype = format::dtype_name(tensor.dtype),
               .shape = tensor.shape,
               .size_bytes = tensor.size_bytes,
               .offset_bytes = extent.offset_bytes + tensor.offset_bytes,
               .file_index = extent.shard_index,
               .role = tensor.is_scale ? TensorRole::kScale : TensorRole::kWeight,
               .format = {},
               .scale = {},
               .block = is_block ? extent.name : std::string()};
  if (tensor.is_scale) {
    ++summary.scales.count;
    summary.scales.bytes += tensor.size_bytes;
    return;
  }
  const StorageLayout layout = packed_layout(tensor, scale_dtypes);
  inspected.format = layout.format;
  inspected.scale = tensor.scale ? tensor.name + "_scale" : std::string();
  add_layout(layouts, layout, tensor.size_bytes);
}

void add_extent(InspectSummary& summary, const format::PackedExtent& extent) {
  std::uint64_t tensor_bytes = 0;
  std::map<std::string_view, format::Dtype> scale_dtypes;  // Beside their weights, in one extent.
  for (const format::PackedTensor& tensor : extent.tensors) {
    tensor_bytes += tensor.size_bytes;
    if (tensor.is_scale) {
      scale_dtypes.emplace(tensor.name, tensor.dtype);
    }
  }
  LayoutTotals* layouts = &summary.outside_layouts;
  if (extent.tier == format::Tier::kBase) {
    summary.outside_count += extent.tensors.size();
    summary.outside_bytes += tensor_bytes;
  } else {
    const std::string_view prefix = group_prefix(extent.name);
    auto group = std::ranges::find(summary.groups, prefix, &InspectedGroup::prefix);
    if (group == summary.groups.end()) {
      summary.groups.push_back({.prefix = std::string(prefix), .layouts = {}});
      group = std::prev(summary.groups.end());
    }
    group->add_block(tensor_bytes);
    layouts = &group->layouts;
  }
  for (const format::PackedTensor& tensor : extent.tensors) {
    add_packed_tensor(summary, extent, tensor, scale_dtypes, *layouts);
  }
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

std::map<std::string, LayoutTotal> InspectSummary::dtypes() const {
  std::map<std::string, LayoutTotal> totals;
  for (const InspectedTensor& tensor : tensors) {
    LayoutTotal& total = totals[std::string(tensor.dtype)];
    ++total.tensor_count;
    total.bytes += tensor.size_bytes;
  }
  return totals;
}

InspectSummary summarize_checkpoint(const LoadedModel& model) {
  const format::Checkpoint& checkpoint = model.checkpoint;
  const ModelConfig config = read_model_config(checkpoint);
  InspectSummary summary;
  summary.path = checkpoint.path();
  summary.fingerprint = checkpoint.fingerprint();
  summary.kind = "checkpoint";
  summary.file_format = file_format_of(checkpoint);
  summary.architecture = find_architecture(config, checkpoint, model.blocks);
  summary.formats = model.weights.formats;
  summary.warnings = model.warnings;
  std::ranges::move(layout_remarks(model, config), std::back_inserter(summary.warnings));
  summary.ties = find_ties(model, config);
  add_files(summary, checkpoint);
  add_tensors(summary, checkpoint);
  add_weights(summary, model, add_groups(summary, model.blocks, model.weights.tied));
  summary.scales.is_checked = false;
  if (model.weights.are_scale_values_checked) {
    set_special_scales(summary, checkpoint, model.weights.special_scales);
  }
  remove_tied(summary, model.weights.tied);
  return summary;
}

Result<void> check_scales(const LoadedModel& model, InspectSummary& summary) {
  TP_ASSIGN_OR_RETURN(const std::vector<format::SpecialScale> special,
                      format::find_special_scales(model.checkpoint, model.weights.weights));
  set_special_scales(summary, model.checkpoint, special);
  std::ranges::move(format::special_scale_warnings(model.checkpoint, special),
                    std::back_inserter(summary.warnings));
  return {};
}

InspectSummary summarize_pack(const std::filesystem::path& path, const format::Manifest& manifest) {
  InspectSummary summary;
  summary.path = path;
  summary.fingerprint = manifest.source_fingerprint;
  summary.kind = "pack";
  for (const format::PackedShard& shard : manifest.shards) {
    summary.files.push_back({.name = shard.name,
                             .path = path / shard.name,
                             .size_bytes = shard.size_bytes,
                             .header_bytes = shard.header_bytes});
  }
  for (const format::PackedExtent& extent : manifest.extents) {
    add_extent(summary, extent);
  }
  for (const auto& [name, target] : manifest.aliases) {
    summary.ties.push_back({.name = name, .target = target, .source = "manifest.json"});
  }
  return summary;
}

}  // namespace trash_panda::cli
