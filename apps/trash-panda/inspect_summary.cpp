#include "inspect_summary.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
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
    if (last_ != layouts_.end() && last_->first == key) {
      return last_->second;
    }
    last_ = layouts_.find(key);
    if (last_ == layouts_.end()) {
      StorageLayout layout{
          .format = ggml_type != nullptr
                        ? std::string(ggml_type->name)
                        : format::storage_name(weight.dtype, granularity, std::get<2>(key)),
          .scale_dtype = scale != nullptr ? std::string(format::dtype_name(scale->dtype)) : "",
          .scale_leaf = std::string(std::get<4>(key))};
      last_ = layouts_.emplace(key, std::move(layout)).first;
    }
    return last_->second;
  }

 private:
  using Key = std::tuple<format::Dtype, std::optional<format::Granularity>, format::Shape,
                         std::optional<format::Dtype>, std::string_view, const format::GgmlType*>;

  const format::Checkpoint& checkpoint_;
  std::map<Key, StorageLayout> layouts_;
  std::map<Key, StorageLayout>::iterator last_ = layouts_.end();  ///< Neighbours are often alike.
};

void add_layout(LayoutTotals& totals, const StorageLayout& layout, std::uint64_t bytes) {
  LayoutTotal& total = totals[layout];
  ++total.tensor_count;
  total.bytes += bytes;
}

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

/// Positions of things by tensor; kNone where a tensor has none.
using Positions = std::vector<std::uint32_t>;
constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

Positions weights_by_tensor(const LoadedModel& model) {
  Positions weights(model.checkpoint.tensors().size(), kNone);
  for (std::size_t i = 0; i < model.weights.weights.size(); ++i) {
    weights[model.weights.weights[i].tensor_index] = static_cast<std::uint32_t>(i);
  }
  return weights;
}

/// Sums up a checkpoint's tensors. Tied ones are other names for bytes that are counted once.
class TensorTotals {
 public:
  explicit TensorTotals(const LoadedModel& model)
      : model_(model),
        layouts_(model.checkpoint),
        weights_(weights_by_tensor(model)),
        is_tied_(weights_.size()) {
    for (const std::size_t index : model.weights.tied) {
      is_tied_[index] = true;
    }
  }

  void add_to(InspectSummary& summary) {
    const std::vector<format::TensorRecord>& tensors = model_.checkpoint.tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!is_tied_[i]) {
        summary.count_tensor(format::type_name(tensors[i]), tensors[i].size_bytes);
      }
    }
    for (const plan::BlockGroup& blocks : model_.blocks.groups) {
      InspectedGroup& group = summary.groups.emplace_back();
      group.prefix = blocks.prefix;
      for (const plan::Block& block : blocks.blocks) {
        group.add_block(add(block.tensors, group.layouts).bytes);
      }
    }
    const LayoutTotal outside = add(model_.blocks.outside, summary.outside_layouts);
    summary.outside_count = outside.tensor_count;
    summary.outside_bytes = outside.bytes;
    for (const format::Weight& weight : model_.weights.weights) {
      if (weight.scale) {
        ++summary.scales.count;
        summary.scales.bytes += tensors[weight.scale->tensor_index].size_bytes;
      }
    }
    for (const std::size_t index : model_.weights.ignored) {
      summary.left_out.emplace_back(tensors[index].name);
    }
  }

  /// The tensors that a listing chooses, with all that is known of each.
  [[nodiscard]] std::vector<InspectedTensor> list(const TensorListing& listing);

 private:
  /// @return Of all tensors of a block or of those outside; of `layouts` are the weights only.
  LayoutTotal add(const std::vector<std::size_t>& indexes, LayoutTotals& layouts) {
    LayoutTotal total;
    const StorageLayout* layout = nullptr;
    LayoutTotal* of_layout = nullptr;
    for (const std::size_t index : indexes) {
      if (is_tied_[index]) {
        continue;
      }
      const std::uint64_t size_bytes = model_.checkpoint.tensors()[index].size_bytes;
      ++total.tensor_count;
      total.bytes += size_bytes;
      if (weights_[index] == kNone) {
        continue;
      }
      const StorageLayout& found = layouts_.find(model_.weights.weights[weights_[index]]);
      if (&found != layout) {
        layout = &found;
        of_layout = &layouts[found];
      }
      ++of_layout->tensor_count;
      of_layout->bytes += size_bytes;
    }
    return total;
  }

  const LoadedModel& model_;
  LayoutFinder layouts_;
  Positions weights_;
  std::vector<bool> is_tied_;
};

std::vector<InspectedTensor> TensorTotals::list(const TensorListing& listing) {
  const std::vector<format::TensorRecord>& tensors = model_.checkpoint.tensors();
  std::vector<std::size_t> untied;
  untied.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_tied_[i]) {
      untied.push_back(i);
    }
  }
  std::vector<InspectedTensor> rows;
  Positions row_of(tensors.size(), kNone);
  for (const std::size_t chosen : listing.choose(
           untied.size(), [&](std::size_t i) { return tensors[untied[i]].name; },
           [&](std::size_t i) { return tensors[untied[i]].size_bytes; })) {
    const format::TensorRecord& tensor = tensors[untied[chosen]];
    row_of[untied[chosen]] = static_cast<std::uint32_t>(rows.size());
    rows.push_back({.name = std::string(tensor.name),
                    .dtype = format::type_name(tensor),
                    .shape = tensor.shape,
                    .size_bytes = tensor.size_bytes,
                    .offset_bytes = tensor.offset_bytes,
                    .file_index = tensor.file_index,
                    .format = {},
                    .scale = {},
                    .block = {}});
  }
  const auto row = [&](std::size_t index) {
    return row_of[index] == kNone ? nullptr : &rows[row_of[index]];
  };
  for (const format::Weight& weight : model_.weights.weights) {
    if (InspectedTensor* stored = row(weight.tensor_index)) {
      stored->format = layouts_.find(weight).format;
      stored->scale = weight.scale ? tensors[weight.scale->tensor_index].name : "";
    }
    if (InspectedTensor* scale = weight.scale ? row(weight.scale->tensor_index) : nullptr) {
      scale->role = TensorRole::kScale;
    }
  }
  for (const std::size_t index : model_.weights.ignored) {
    if (InspectedTensor* ignored = row(index)) {
      ignored->role = TensorRole::kLeftOut;
    }
  }
  for (const plan::BlockGroup& group : model_.blocks.groups) {
    for (const plan::Block& block : group.blocks) {
      for (const std::size_t index : block.tensors) {
        if (InspectedTensor* member = row(index)) {
          member->block = block.name;
        }
      }
    }
  }
  return rows;
}

void set_special_scales(InspectSummary& summary, const format::Checkpoint& checkpoint,
                        const std::vector<format::SpecialScale>& special) {
  summary.scales.is_checked = true;
  for (const format::SpecialScale& scale : special) {
    summary.scales.special.push_back(
        {.name = std::string(checkpoint.tensors()[scale.tensor_index].name), .kind = scale.kind});
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
  summary.count_tensor(format::dtype_name(tensor.dtype), tensor.size_bytes);
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

void InspectSummary::count_tensor(std::string_view dtype, std::uint64_t size_bytes) {
  ++tensor_count;
  total_bytes += size_bytes;
  auto total = dtypes.find(dtype);
  if (total == dtypes.end()) {
    total = dtypes.emplace(dtype, LayoutTotal{}).first;
  }
  ++total->second.tensor_count;
  total->second.bytes += size_bytes;
}

InspectSummary summarize_checkpoint(const LoadedModel& model, const TensorListing& listing) {
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
  TensorTotals totals(model);
  totals.add_to(summary);
  summary.tensors = totals.list(listing);
  summary.scales.is_checked = false;
  if (model.weights.are_scale_values_checked) {
    set_special_scales(summary, checkpoint, model.weights.special_scales);
  }
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

InspectSummary summarize_pack(const std::filesystem::path& path, const format::Manifest& manifest,
                              const TensorListing& listing) {
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
  list_tensors(summary, listing);
  return summary;
}

void list_tensors(InspectSummary& summary, const TensorListing& listing) {
  std::vector<InspectedTensor> listed;
  for (const std::size_t i : listing.choose(
           summary.tensors.size(),
           [&](std::size_t at) { return std::string_view(summary.tensors[at].name); },
           [&](std::size_t at) { return summary.tensors[at].size_bytes; })) {
    listed.push_back(std::move(summary.tensors[i]));
  }
  summary.tensors = std::move(listed);
}

}  // namespace trash_panda::cli
