#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/manifest.h"

#include "foreign_json.h"
#include "json_object.h"
#include "manifest_check.h"
#include "manifest_extent.h"

namespace trash_panda::format {

namespace {

using simdjson::dom::element;

std::optional<Granularity> parse_granularity(std::string_view name) {
  for (const Granularity known :
       {Granularity::kTensor, Granularity::kRow, Granularity::kColumn, Granularity::kBlock}) {
    if (granularity_name(known) == name) {
      return known;
    }
  }
  return std::nullopt;
}

Error unsupported(const ManifestObject& object, std::string_view key, std::string_view value) {
  return object.error(key, fmt::format("is \"{}\", which is not known here", printable(value)))
      .with_code(ErrorCode::kUnsupported)
      .with_hint("a newer trash-panda may read this pack");
}

/// Calls `read(element, place)` for each element of the array `key`.
template <class Read>
Result<void> for_each(const ManifestObject& object, std::string_view key, Read&& read) {
  TP_ASSIGN_OR_RETURN(const simdjson::dom::array array, object.array(key));
  std::size_t index = 0;
  for (const element item : array) {
    const JsonPlace place{.parent = &object.place(), .key = key, .index = index++};
    TP_RETURN_IF_ERROR(read(item, place));
  }
  return {};
}

Result<Shape> parse_shape(const ManifestObject& object, std::string_view key) {
  Shape shape;
  TP_RETURN_IF_ERROR(
      for_each(object, key, [&](const element& item, const JsonPlace& place) -> Result<void> {
        std::uint64_t dimension = 0;
        if (item.get(dimension) != simdjson::SUCCESS) {
          return std::unexpected(json_error(place, "is not a dimension"));
        }
        shape.push_back(dimension);
        return {};
      }));
  return shape;
}

Result<PackedScale> parse_scale(const element& json, const JsonPlace& place) {
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("granularity"));
  const std::optional<Granularity> granularity = parse_granularity(name);
  if (!granularity) {
    return std::unexpected(unsupported(object, "granularity", name));
  }
  TP_ASSIGN_OR_RETURN(const std::string_view source_name, object.text("source_name"));
  PackedScale scale{
      .granularity = *granularity, .block_shape = {}, .source_name = std::string(source_name)};
  if (object.has("block_shape")) {
    TP_ASSIGN_OR_RETURN(scale.block_shape, parse_shape(object, "block_shape"));
  }
  return scale;
}

Result<std::uint32_t> parse_index(const ManifestObject& object, std::string_view key) {
  TP_ASSIGN_OR_RETURN(const std::uint64_t index, object.number(key));
  if (index > std::numeric_limits<std::uint32_t>::max()) {
    return std::unexpected(object.error(key, fmt::format("is {}", index)));
  }
  return static_cast<std::uint32_t>(index);
}

Result<PackedSource> parse_source(const element& json, const JsonPlace& place) {
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  PackedSource source;
  if (object.has("file")) {
    TP_ASSIGN_OR_RETURN(source.file_index, parse_index(object, "file"));
  }
  if (object.has("name")) {
    TP_ASSIGN_OR_RETURN(source.name, object.text("name"));
  }
  if (object.has("dtype")) {
    TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("dtype"));
    source.dtype = parse_dtype(name);
    if (!source.dtype) {
      return std::unexpected(unsupported(object, "dtype", name));
    }
  }
  if (object.has("shape")) {
    TP_ASSIGN_OR_RETURN(source.shape, parse_shape(object, "shape"));
  }
  for (const auto& [key, flag] :
       {std::pair<std::string_view, bool&>("normalized", source.is_normalized),
        {"rounded", source.is_rounded}}) {
    if (object.has(key)) {
      TP_ASSIGN_OR_RETURN(const element value, object.element(key));
      if (value.get(flag) != simdjson::SUCCESS) {
        return std::unexpected(object.error(key, "is neither true nor false"));
      }
    }
  }
  return source;
}

/// Where a tensor of a coded extent lies.
Result<void> parse_stored_place(const ManifestObject& object, std::string_view codec,
                                PackedTensor& tensor) {
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("coding"));
  const std::optional<TensorCoding> coding = parse_tensor_coding(name);
  if (!coding) {
    return std::unexpected(unsupported(object, "coding", name));
  }
  if (*coding == TensorCoding::kZstd && codec != kCodecZstd) {
    return std::unexpected(
        object.error("coding", fmt::format("is \"zstd\" in an extent of codec \"{}\"", codec)));
  }
  tensor.coding = *coding;
  TP_ASSIGN_OR_RETURN(tensor.stored_offset_bytes, object.number("stored_offset_bytes"));
  TP_ASSIGN_OR_RETURN(tensor.stored_bytes, object.number("stored_bytes"));
  return {};
}

Result<PackedTensor> parse_tensor(const element& json, const JsonPlace& place,
                                  std::string_view codec) {
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("name"));
  TP_ASSIGN_OR_RETURN(const std::string_view dtype_text, object.text("dtype"));
  const std::optional<Dtype> dtype = parse_dtype(dtype_text);
  if (!dtype) {
    return std::unexpected(unsupported(object, "dtype", dtype_text));
  }
  TP_ASSIGN_OR_RETURN(Shape shape, parse_shape(object, "shape"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t offset_bytes, object.number("offset_bytes"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, object.number("size_bytes"));
  PackedTensor tensor{.name = std::string(name),
                      .dtype = *dtype,
                      .shape = std::move(shape),
                      .offset_bytes = offset_bytes,
                      .size_bytes = size_bytes,
                      .scale = {},
                      .stored_offset_bytes = offset_bytes,
                      .stored_bytes = size_bytes};
  if (object.has("source")) {
    TP_ASSIGN_OR_RETURN(const element source, object.element("source"));
    TP_ASSIGN_OR_RETURN(tensor.source, parse_source(source, {.parent = &place, .key = "source"}));
  }
  if (codec != kCodecRaw) {
    TP_RETURN_IF_ERROR(parse_stored_place(object, codec, tensor));
  }
  if (object.has("role")) {
    TP_ASSIGN_OR_RETURN(const std::string_view role, object.text("role"));
    if (role != "scale") {
      return std::unexpected(unsupported(object, "role", role));
    }
    tensor.is_scale = true;
  }
  if (object.has("scale")) {
    TP_ASSIGN_OR_RETURN(const element scale, object.element("scale"));
    TP_ASSIGN_OR_RETURN(tensor.scale, parse_scale(scale, {.parent = &place, .key = "scale"}));
  }
  return tensor;
}

Result<PackedExtent> parse_extent(const element& json, const JsonPlace& place) {
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("name"));
  TP_ASSIGN_OR_RETURN(const std::string_view tier_text, object.text("tier"));
  const std::optional<Tier> tier = parse_tier(tier_text);
  if (!tier) {
    return std::unexpected(unsupported(object, "tier", tier_text));
  }
  TP_ASSIGN_OR_RETURN(const std::uint32_t shard, parse_index(object, "shard"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t offset_bytes, object.number("offset_bytes"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t stored_bytes, object.number("stored_bytes"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t raw_bytes, object.number("raw_bytes"));
  TP_ASSIGN_OR_RETURN(const std::string_view codec, object.text("codec"));
  if (codec != kCodecRaw && codec != kCodecExponent && codec != kCodecZstd) {
    return std::unexpected(unsupported(object, "codec", codec));
  }
  TP_ASSIGN_OR_RETURN(const std::string_view checksum, object.checksum("xxh3_128"));
  PackedExtent extent{.name = std::string(name),
                      .tier = *tier,
                      .shard_index = shard,
                      .offset_bytes = offset_bytes,
                      .stored_bytes = stored_bytes,
                      .raw_bytes = raw_bytes,
                      .codec = std::string(codec),
                      .checksum = std::string(checksum),
                      .tensors = {}};
  TP_ASSIGN_OR_RETURN(const simdjson::dom::array tensors, object.array("tensors"));
  // What a hostile text claims by its commas is not taken at once.
  extent.tensors.reserve(std::min<std::size_t>(tensors.size(), 65'536));
  TP_RETURN_IF_ERROR(for_each(
      object, "tensors", [&](const element& item, const JsonPlace& tensor_place) -> Result<void> {
        TP_ASSIGN_OR_RETURN(PackedTensor tensor, parse_tensor(item, tensor_place, codec));
        extent.tensors.push_back(std::move(tensor));
        return {};
      }));
  return extent;
}

Result<PackedShard> parse_shard(const element& json, const JsonPlace& place) {
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("name"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, object.number("size_bytes"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t header_bytes, object.number("header_bytes"));
  TP_ASSIGN_OR_RETURN(const std::string_view checksum, object.checksum("header_xxh3_128"));
  return PackedShard{.name = std::string(name),
                     .size_bytes = size_bytes,
                     .header_bytes = header_bytes,
                     .header_checksum = std::string(checksum)};
}

/// Calls `read(name, element)` for each member of the object `key`, whose names are not ours.
template <class Read>
Result<void> for_each_member(const ManifestObject& object, std::string_view key, Read&& read) {
  TP_ASSIGN_OR_RETURN(const element json, object.element(key));
  const JsonPlace place{.parent = &object.place(), .key = key};
  TP_ASSIGN_OR_RETURN(const ManifestObject members, ManifestObject::open(json, place));
  for (const JsonMember& member : members.members()) {
    TP_RETURN_IF_ERROR(read(members, member.key, member.value));
  }
  return {};
}

/// Reads an object of strings.
Result<std::map<std::string, std::string>> parse_strings(const ManifestObject& object,
                                                         std::string_view key) {
  std::map<std::string, std::string> strings;
  TP_RETURN_IF_ERROR(for_each_member(
      object, key,
      [&](const ManifestObject& members, std::string_view name, element value) -> Result<void> {
        std::string_view text;
        if (value.get(text) != simdjson::SUCCESS) {
          return std::unexpected(members.error(name, "is not a string"));
        }
        strings.emplace(name, text);
        return {};
      }));
  return strings;
}

Result<SourceFile> parse_source_file(const element& json, const JsonPlace& place) {
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("name"));
  TP_ASSIGN_OR_RETURN(const std::uint64_t size_bytes, object.number("size_bytes"));
  SourceFile file{.name = std::string(name), .size_bytes = size_bytes};
  if (object.has("metadata")) {
    TP_ASSIGN_OR_RETURN(file.metadata, parse_strings(object, "metadata"));
  }
  return file;
}

Result<CheckpointIndex> parse_source_index(const ManifestObject& root) {
  TP_ASSIGN_OR_RETURN(const element json, root.element("source_index"));
  const JsonPlace place{.parent = &root.place(), .key = "source_index"};
  TP_ASSIGN_OR_RETURN(const ManifestObject object, ManifestObject::open(json, place));
  TP_ASSIGN_OR_RETURN(const std::string_view name, object.text("name"));
  TP_ASSIGN_OR_RETURN(const std::string_view members, object.text("members"));
  const nlohmann::json parsed = parse_foreign_json(members);
  if (!parsed.is_object() || parsed.contains("weight_map")) {
    return std::unexpected(
        object.error("members", "is not the text of a JSON object without a weight_map"));
  }
  return CheckpointIndex{.name = std::string(name), .members = std::string(members)};
}

/// What must be known before anything else of the document can be judged.
Result<void> check_version(const ManifestObject& root) {
  TP_ASSIGN_OR_RETURN(const std::string_view format, root.text("format"));
  if (format != kPackFormat) {
    return std::unexpected(
        root.error("format", fmt::format("is \"{}\", not \"{}\"", printable(format), kPackFormat)));
  }
  TP_ASSIGN_OR_RETURN(const std::uint64_t version, root.number("version"));
  if (version != kPackVersion) {
    return std::unexpected(
        root.error("version", fmt::format("is {}; this program reads {}", version, kPackVersion))
            .with_code(ErrorCode::kUnsupported)
            .with_reason("version")
            .with_hint("repack the checkpoint, or use the trash-panda that wrote the pack"));
  }
  return for_each(root, "required_features",
                  [&](const element& item, const JsonPlace& place) -> Result<void> {
                    std::string_view feature;
                    if (item.get(feature) != simdjson::SUCCESS) {
                      return std::unexpected(json_error(place, "is not a string"));
                    }
                    return std::unexpected(unsupported(root, "required_features", feature));
                  });
}

/// The last member is the checksum of all bytes before the line it stands on.
Result<void> check_seal(std::string_view text, const ManifestObject& root) {
  TP_ASSIGN_OR_RETURN(const std::string_view expected, root.checksum(kManifestChecksumKey));
  const std::size_t key = text.rfind(fmt::format("\"{}\"", kManifestChecksumKey));
  const std::size_t line = key == std::string_view::npos ? key : text.rfind('\n', key);
  if (line == std::string_view::npos) {
    return std::unexpected(root.error(kManifestChecksumKey, "does not stand on a line of its own"));
  }
  const std::string found = checksum_hex(std::as_bytes(std::span(text.substr(0, line + 1))));
  if (found != expected) {
    return std::unexpected(
        root.error(kManifestChecksumKey, fmt::format("is {}, but the text before it has {}: it was "
                                                     "damaged or edited",
                                                     expected, found))
            .with_reason("checksum"));
  }
  return {};
}

Result<void> parse_head(const ManifestObject& root, Manifest& manifest) {
  TP_ASSIGN_OR_RETURN(manifest.generator, root.text("generator"));
  TP_ASSIGN_OR_RETURN(manifest.page_bytes, root.number("page_bytes"));
  TP_ASSIGN_OR_RETURN(manifest.source_path, root.text("source_path"));
  TP_ASSIGN_OR_RETURN(manifest.source_fingerprint, root.text("source_fingerprint"));
  TP_ASSIGN_OR_RETURN(manifest.plan_checksum, root.checksum("plan_xxh3_128"));
  TP_RETURN_IF_ERROR(for_each(
      root, "source_files", [&](const element& item, const JsonPlace& place) -> Result<void> {
        TP_ASSIGN_OR_RETURN(SourceFile file, parse_source_file(item, place));
        manifest.source_files.push_back(std::move(file));
        return {};
      }));
  if (root.has("source_index")) {
    TP_ASSIGN_OR_RETURN(manifest.source_index, parse_source_index(root));
  }
  return {};
}

/// What unpacking needs beside the tensors; packs of one plain file have none of it.
Result<void> parse_source_remarks(const ManifestObject& root, Manifest& manifest) {
  if (root.has("stored_aliases")) {
    TP_RETURN_IF_ERROR(for_each_member(
        root, "stored_aliases",
        [&](const ManifestObject& members, std::string_view name, element) -> Result<void> {
          TP_ASSIGN_OR_RETURN(const std::uint32_t file, parse_index(members, name));
          manifest.stored_aliases.emplace(name, file);
          return {};
        }));
  }
  if (!root.has("left_out")) {
    return {};
  }
  return for_each(root, "left_out",
                  [&](const element& item, const JsonPlace& place) -> Result<void> {
                    std::string_view name;
                    if (item.get(name) != simdjson::SUCCESS) {
                      return std::unexpected(json_error(place, "is not a string"));
                    }
                    manifest.left_out.emplace_back(name);
                    return {};
                  });
}

}  // namespace

Result<PackedExtent> parse_extent_line(std::string_view line, std::string_view where) {
  simdjson::dom::parser parser;
  element document;
  const JsonPlace place{.key = where};
  if (parser.parse(line.data(), line.size()).get(document) != simdjson::SUCCESS) {
    return std::unexpected(json_error(place, "is not valid JSON"));
  }
  return parse_extent(document, place);
}

Result<Manifest> parse_manifest(std::string_view text, std::string_view where) {
  simdjson::dom::parser parser;
  element document;
  if (const auto error = parser.parse(text.data(), text.size()).get(document)) {
    return std::unexpected(Error(ErrorCode::kCorrupt, fmt::format("{} is not valid JSON: {}", where,
                                                                  simdjson::error_message(error)))
                               .with_reason("json"));
  }
  const JsonPlace place{.key = where};
  TP_ASSIGN_OR_RETURN(const ManifestObject root, ManifestObject::open(document, place));
  Manifest manifest;
  TP_RETURN_IF_ERROR(check_version(root));
  TP_RETURN_IF_ERROR(check_seal(text, root));
  TP_RETURN_IF_ERROR(parse_head(root, manifest));
  TP_RETURN_IF_ERROR(for_each(
      root, "shards", [&](const element& item, const JsonPlace& shard_place) -> Result<void> {
        TP_ASSIGN_OR_RETURN(PackedShard shard, parse_shard(item, shard_place));
        manifest.shards.push_back(std::move(shard));
        return {};
      }));
  TP_RETURN_IF_ERROR(for_each(
      root, "extents", [&](const element& item, const JsonPlace& extent_place) -> Result<void> {
        TP_ASSIGN_OR_RETURN(PackedExtent extent, parse_extent(item, extent_place));
        manifest.extents.push_back(std::move(extent));
        return {};
      }));
  TP_ASSIGN_OR_RETURN(manifest.aliases, parse_strings(root, "aliases"));
  TP_RETURN_IF_ERROR(parse_source_remarks(root, manifest));
  TP_RETURN_IF_ERROR(check_manifest(manifest, where));
  return manifest;
}

}  // namespace trash_panda::format
