#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <unordered_set>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_writer.h"

#include "coded_extent.h"
#include "gguf_weights.h"
#include "manifest_check.h"
#include "shard_header.h"
#include "tensor_size.h"

namespace trash_panda::format {

namespace {

/// Order of the shards in the manifest, and so of writing.
constexpr std::array<Tier, 4> kTierOrder = {Tier::kBase, Tier::kGpu, Tier::kRam, Tier::kDisk};

/// Of an extent whose shard has not been laid out yet.
constexpr std::uint32_t kNoShard = UINT32_MAX;

Error layout_error(std::string message) {
  return Error(ErrorCode::kUsage, std::move(message));
}

/// @param file  Which file of the checkpoint it is from, for messages.
Result<void> check_not_reserved(std::string_view name, std::string_view what,
                                std::string_view file) {
  for (const std::string_view reserved : {kPadPrefix, kCodedPrefix}) {
    if (name.starts_with(reserved)) {
      return std::unexpected(Error(ErrorCode::kUnsupported,
                                   fmt::format("{}: {} \"{}\" has a name that packs reserve ({}*)",
                                               printable(file), what, excerpt(name), reserved))
                                 .with_reason("reserved_name")
                                 .with_hint("rename it in the checkpoint"));
    }
  }
  return {};
}

/// Every weight is in exactly one extent, and no two tensors of the pack share a name.
class WeightLedger {
 public:
  explicit WeightLedger(const WeightTable& table) : table_(table), taken_(table.weights.size()) {}

  Result<void> take(std::size_t weight_index, const std::string& extent) {
    if (weight_index >= taken_.size()) {
      return std::unexpected(layout_error(fmt::format("extent \"{}\" asks for weight {} of {}",
                                                      extent, weight_index, taken_.size())));
    }
    if (taken_[weight_index]) {
      return std::unexpected(layout_error(
          fmt::format("\"{}\" is in extent \"{}\" and in one before it",
                      printable(table_.weights[weight_index].name), printable(extent))));
    }
    taken_[weight_index] = true;
    return {};
  }

  /// @param file  Which file of the checkpoint it is from, for messages.
  Result<void> take_name(const std::string& name, std::string_view what, std::string_view file) {
    TP_RETURN_IF_ERROR(check_not_reserved(name, what, file));
    if (!names_.insert(name).second) {
      return std::unexpected(
          Error(ErrorCode::kUnsupported, fmt::format("{}: {} \"{}\" has the name of another tensor",
                                                     printable(file), what, excerpt(name)))
              .with_reason("duplicate")
              .with_hint("rename the other one: in packs the scale of X is named X_scale"));
    }
    return {};
  }

  [[nodiscard]] Result<void> all_taken() const {
    const auto left = std::ranges::find(taken_, false);
    if (left == taken_.end()) {
      return {};
    }
    const auto index = static_cast<std::size_t>(left - taken_.begin());
    return std::unexpected(layout_error(
        fmt::format("no extent has tensor \"{}\"", printable(table_.weights[index].name))));
  }

 private:
  const WeightTable& table_;
  std::vector<bool> taken_;
  std::unordered_set<std::string> names_;
};

/// Puts a tensor behind those that the extent has.
Result<void> append(PackedExtent& extent, PackedTensor tensor) {
  const std::uint64_t end_bytes = extent.tensors.empty() ? 0
                                                         : extent.tensors.back().offset_bytes +
                                                               extent.tensors.back().size_bytes;
  TP_ASSIGN_OR_RETURN(tensor.offset_bytes, round_up(end_bytes, kTensorAlignment));
  if (tensor.size_bytes > UINT64_MAX - tensor.offset_bytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("extent \"{}\" would take more than 2^64 bytes", printable(extent.name)))
            .with_reason("overflow"));
  }
  tensor.stored_offset_bytes = tensor.offset_bytes;
  tensor.stored_bytes = tensor.size_bytes;
  extent.tensors.push_back(std::move(tensor));
  return {};
}

/// How the source stores a scale, and whether its bytes can be made from the canonical ones.
PackedSource scale_source(const TensorRecord& record, const WeightScale& scale) {
  PackedSource source = {.file_index = record.file_index};
  if (record.dtype != scale.dtype) {
    source.dtype = record.dtype;
  }
  if (record.shape != scale.shape) {
    source.shape = record.shape;
  }
  const bool is_widened =
      scale.dtype == Dtype::kF32 && (record.dtype == Dtype::kBf16 || record.dtype == Dtype::kF16);
  const bool is_renamed = scale.dtype == Dtype::kF8E8M0 && record.dtype == Dtype::kU8;
  source.is_normalized = scale.transform != ScaleTransform::kNone ||
                         (record.dtype != scale.dtype && !is_widened && !is_renamed);
  return source;
}

/// Makes a weight what it is converted to.
Result<void> convert(PackedTensor& packed, const TensorRecord& record,
                     const WeightConversion& conversion) {
  const std::optional<std::uint64_t> size_bytes = tensor_size_bytes(conversion.dtype, record.shape);
  if (packed.scale || !size_bytes) {
    return std::unexpected(layout_error(fmt::format(
        "\"{}\" can't be stored as {}", printable(packed.name), dtype_name(conversion.dtype))));
  }
  packed.source.dtype = record.dtype;
  packed.source.is_rounded = !conversion.is_exact;
  packed.dtype = conversion.dtype;
  packed.size_bytes = *size_bytes;
  if (conversion.scale) {
    packed.scale =
        PackedScale{.granularity = Granularity::kTensor, .block_shape = {}, .source_name = {}};
  }
  return {};
}

/// The scale of a weight that has none in the source.
PackedTensor new_scale(const std::string& name, const PackedTensor& weight) {
  return {.name = name,
          .dtype = Dtype::kF32,
          .shape = {},
          .offset_bytes = 0,
          .size_bytes = sizeof(float),
          .scale = {},
          .is_scale = true,
          .source = {.file_index = weight.source.file_index, .is_normalized = true}};
}

Result<void> append_weight(PackedExtent& extent, const Checkpoint& checkpoint, const Weight& weight,
                           const WeightConversion* conversion, WeightLedger& ledger) {
  const TensorRecord& record = checkpoint.tensors()[weight.tensor_index];
  if (tensor_size_bytes(weight.dtype, record.shape) != record.size_bytes) {
    return std::unexpected(Error(ErrorCode::kCorrupt,
                                 fmt::format("\"{}\" of shape {} and {} bytes can't be read as {}",
                                             printable(weight.name), to_string(record.shape),
                                             record.size_bytes, dtype_name(weight.dtype)))
                               .with_reason("size_mismatch"));
  }
  const std::string& file = checkpoint.files()[record.file_index].name;
  TP_RETURN_IF_ERROR(ledger.take_name(std::string(weight.name), "tensor", file));
  PackedTensor packed{.name = std::string(weight.name),
                      .dtype = weight.dtype,
                      .shape = record.shape,
                      .offset_bytes = 0,
                      .size_bytes = record.size_bytes,
                      .scale = {},
                      .source = {.file_index = record.file_index}};
  if (weight.name != record.name) {
    packed.source.name = record.name;
  }
  if (weight.dtype != record.dtype) {
    packed.source.dtype = record.dtype;
  }
  if (weight.scale) {
    packed.scale = PackedScale{
        .granularity = weight.scale->granularity,
        .block_shape = weight.scale->block_shape,
        .source_name = std::string(checkpoint.tensors()[weight.scale->tensor_index].name)};
  }
  if (conversion != nullptr) {
    TP_RETURN_IF_ERROR(convert(packed, record, *conversion));
  }
  TP_RETURN_IF_ERROR(append(extent, std::move(packed)));
  if (conversion != nullptr && conversion->scale) {
    TP_RETURN_IF_ERROR(ledger.take_name(weight.scale_name(), "scale", file));
    return append(extent, new_scale(weight.scale_name(), extent.tensors.back()));
  }
  if (!weight.scale) {
    return {};
  }
  TP_RETURN_IF_ERROR(ledger.take_name(weight.scale_name(), "scale", file));
  return append(
      extent, PackedTensor{.name = weight.scale_name(),
                           .dtype = weight.scale->dtype,
                           .shape = weight.scale->shape,
                           .offset_bytes = 0,
                           .size_bytes = scale_size_bytes(*weight.scale),
                           .scale = {},
                           .is_scale = true,
                           .source = scale_source(checkpoint.tensors()[weight.scale->tensor_index],
                                                  *weight.scale)});
}

Result<PackedExtent> lay_out_extent(const Checkpoint& checkpoint, const WeightTable& table,
                                    const ExtentLayout& layout,
                                    const std::map<std::size_t, WeightConversion>& conversions,
                                    std::uint64_t page_bytes, WeightLedger& ledger) {
  PackedExtent extent{.name = layout.name,
                      .tier = layout.tier,
                      .shard_index = kNoShard,
                      .offset_bytes = 0,
                      .stored_bytes = 0,
                      .raw_bytes = 0,
                      .codec = std::string(kCodecRaw),
                      .checksum = {},
                      .tensors = {}};
  if (layout.weights.empty()) {
    return std::unexpected(
        layout_error(fmt::format("extent \"{}\" has no tensors", printable(layout.name))));
  }
  for (const std::size_t weight_index : layout.weights) {
    TP_RETURN_IF_ERROR(ledger.take(weight_index, layout.name));
    const auto conversion = conversions.find(weight_index);
    TP_RETURN_IF_ERROR(
        append_weight(extent, checkpoint, table.weights[weight_index],
                      conversion == conversions.end() ? nullptr : &conversion->second, ledger));
  }
  const PackedTensor& last = extent.tensors.back();
  // At least a page, so that an extent of empty tensors has a place too.
  TP_ASSIGN_OR_RETURN(
      extent.raw_bytes,
      round_up(std::max<std::uint64_t>(last.offset_bytes + last.size_bytes, 1), page_bytes));
  extent.stored_bytes = extent.raw_bytes;
  TP_RETURN_IF_ERROR(make_room_for_codes(extent, layout, page_bytes));
  return extent;
}

/// Makes one shard of all extents of a tier, if there are any.
Result<void> lay_out_shard(Manifest& manifest, Tier tier) {
  const auto shard_index = static_cast<std::uint32_t>(manifest.shards.size());
  std::uint64_t data_bytes = 0;
  for (PackedExtent& extent : manifest.extents) {
    if (extent.tier != tier) {
      continue;
    }
    extent.shard_index = shard_index;
    extent.offset_bytes = data_bytes;  // The header's length is added below.
    if (extent.stored_bytes > UINT64_MAX / 2 - data_bytes) {
      return std::unexpected(Error(ErrorCode::kCorrupt,
                                   fmt::format("the {} shard would be too large", tier_name(tier)))
                                 .with_reason("overflow"));
    }
    data_bytes += extent.stored_bytes;
  }
  if (data_bytes == 0) {
    return {};
  }
  manifest.shards.push_back({.name = fmt::format("{}-00001.safetensors", tier_name(tier)),
                             .size_bytes = 0,
                             .header_bytes = 0,
                             .header_checksum = {}});
  TP_ASSIGN_OR_RETURN(const std::string header, make_shard_header(manifest, shard_index));
  for (PackedExtent& extent : manifest.extents) {
    if (extent.tier == tier) {
      extent.offset_bytes += header.size();
    }
  }
  manifest.shards.back().header_bytes = header.size();
  manifest.shards.back().size_bytes = header.size() + data_bytes;
  return {};
}

/// What codes take of weights as they are: exponents 1.47 times less for bf16, zstd 1.2 times less
/// for fp8. Random bits take all of their bytes, but no model is made of them.
std::uint64_t expected_code_bytes(const PackedTensor& tensor) {
  return tensor.size_bytes / 100 * (tensor.coding == TensorCoding::kZstd ? 84 : 69);
}

Manifest manifest_head(const Checkpoint& checkpoint, const PackLayout& layout,
                       const PackOptions& options) {
  Manifest manifest{.generator = options.generator,
                    .source_path = checkpoint.path().string(),
                    .source_fingerprint = checkpoint.fingerprint(),
                    .source_files = {},
                    .source_index = checkpoint.index(),
                    .page_bytes = options.page_bytes,
                    .shards = {},
                    .extents = {},
                    .aliases = layout.aliases,
                    .stored_aliases = {},
                    .left_out = {},
                    .plan_checksum = {}};
  for (const CheckpointFile& file : checkpoint.files()) {
    manifest.source_files.push_back(
        {.name = file.name,
         .size_bytes = file.size_bytes,
         .metadata = file.has_metadata ? std::optional(file.metadata) : std::nullopt});
  }
  return manifest;
}

/// Remembers which aliases the source stores as tensors of their own, rather than by its metadata
/// or its configuration.
void note_stored_aliases(const Checkpoint& checkpoint, Manifest& manifest) {
  for (const auto& [alias, target] : manifest.aliases) {
    const std::optional<std::size_t> alias_index = checkpoint.find(alias);
    const std::optional<std::size_t> target_index = checkpoint.find(target);
    if (!alias_index) {
      continue;
    }
    const TensorRecord& record = checkpoint.tensors()[*alias_index];
    // Tensors of safetensors files don't overlap, except by name.
    const bool is_by_metadata =
        target_index && checkpoint.files()[record.file_index].kind == FileKind::kSafetensors &&
        checkpoint.tensors()[*target_index].file_index == record.file_index &&
        checkpoint.tensors()[*target_index].offset_bytes == record.offset_bytes &&
        record.size_bytes > 0;
    if (!is_by_metadata) {
      manifest.stored_aliases.emplace(alias, record.file_index);
    }
  }
}

}  // namespace

Result<void> check_packable(const Checkpoint& checkpoint) {
  if (!checkpoint.is_gguf()) {
    for (const TensorRecord& tensor : checkpoint.tensors()) {
      TP_RETURN_IF_ERROR(
          check_not_reserved(tensor.name, "tensor", checkpoint.files()[tensor.file_index].name));
    }
    return {};
  }
  const std::string source = gguf_source(checkpoint);
  return std::unexpected(
      Error(ErrorCode::kUnsupported,
            fmt::format("{} is GGUF, which this version can inspect and plan for, but neither "
                        "repack nor stream",
                        printable(checkpoint.path())))
          .with_reason("gguf")
          .with_hint(fmt::format("get the model's safetensors files{}",
                                 source.empty() ? "" : ", by its metadata from " + source)));
}

Result<Manifest> lay_out_pack(const Checkpoint& checkpoint, const WeightTable& weights,
                              const PackLayout& layout, const PackOptions& options) {
  TP_RETURN_IF_ERROR(check_packable(checkpoint));
  if (!is_page_size(options.page_bytes)) {
    return std::unexpected(layout_error(
        fmt::format("extents can't be aligned to {} bytes: it takes a power of two from "
                    "{} to {}",
                    options.page_bytes, kPageBytesMin, kPageBytesMax)));
  }
  Manifest manifest = manifest_head(checkpoint, layout, options);
  manifest.aliases.insert(weights.aliases.begin(), weights.aliases.end());
  note_stored_aliases(checkpoint, manifest);
  for (const std::size_t tensor_index : weights.ignored) {
    manifest.left_out.emplace_back(checkpoint.tensors()[tensor_index].name);
  }
  WeightLedger ledger(weights);
  for (const ExtentLayout& extent_layout : layout.extents) {
    TP_ASSIGN_OR_RETURN(PackedExtent extent,
                        lay_out_extent(checkpoint, weights, extent_layout, layout.conversions,
                                       options.page_bytes, ledger));
    manifest.extents.push_back(std::move(extent));
  }
  TP_RETURN_IF_ERROR(ledger.all_taken());
  for (const Tier tier : kTierOrder) {
    if (Result<void> laid_out = lay_out_shard(manifest, tier); !laid_out) {
      return std::unexpected(
          std::move(laid_out).error().with_context(printable(checkpoint.path())));
    }
  }
  TP_RETURN_IF_ERROR(check_manifest(manifest, "the layout of the pack"));
  return manifest;
}

PackSize pack_size(const Manifest& manifest) {
  PackSize size{};
  for (const PackedShard& shard : manifest.shards) {
    size.total_bytes += shard.header_bytes;
  }
  for (const PackedExtent& extent : manifest.extents) {
    std::uint64_t stored_bytes = extent.stored_bytes;
    if (extent.checksum.empty()) {
      for (const PackedTensor& tensor : extent.tensors) {
        stored_bytes -= tensor.coding == TensorCoding::kRaw
                            ? 0
                            : tensor.stored_bytes - expected_code_bytes(tensor);
      }
    }
    size.total_bytes += stored_bytes;
    size.tier_bytes[extent.tier] += stored_bytes;
  }
  return size;
}

}  // namespace trash_panda::format
