#include <algorithm>
#include <span>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/format/checksum.h"
#include "trash_panda/format/manifest.h"

#include "manifest_check.h"
#include "manifest_extent.h"

namespace trash_panda::format {

namespace {

// The layout between lines and within them is made here, one tensor a line, so that a manifest can
// be read, searched and compared by people; the library writes the values.
using Json = nlohmann::ordered_json;

std::string dump(const Json& value) {
  // Paths need not be UTF-8; what is not is replaced rather than refused. Names are UTF-8 already.
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Without the closing brace, so that more members can follow.
std::string dump_open(const Json& object) {
  std::string text = dump(object);
  text.pop_back();
  return text;
}

/// "[\n<item>,\n<item>\n<indent>]", or "[]".
template <class Items, class Write>
std::string lines(const Items& items, std::string_view indent, Write&& write) {
  std::string text = "[";
  bool is_first = true;
  for (const auto& item : items) {
    text += is_first ? "\n" : ",\n";
    is_first = false;
    text += indent;
    text += "  ";
    text += write(item);
  }
  if (!is_first) {
    text += '\n';
    text += indent;
  }
  text += ']';
  return text;
}

Json source_json(const PackedSource& source) {
  Json json = Json::object();
  if (source.file_index != 0) {
    json["file"] = source.file_index;
  }
  if (!source.name.empty()) {
    json["name"] = source.name;
  }
  if (source.dtype) {
    json["dtype"] = dtype_name(*source.dtype);
  }
  if (source.shape) {
    json["shape"] = *source.shape;
  }
  if (source.is_normalized) {
    json["normalized"] = true;
  }
  if (source.is_rounded) {
    json["rounded"] = true;
  }
  return json;
}

std::string write_tensor(const PackedTensor& tensor, bool is_in_coded_extent) {
  Json json = {{"name", tensor.name},
               {"dtype", dtype_name(tensor.dtype)},
               {"shape", tensor.shape},
               {"offset_bytes", tensor.offset_bytes},
               {"size_bytes", tensor.size_bytes}};
  if (tensor.is_scale) {
    json["role"] = "scale";
  }
  if (tensor.scale) {
    Json scale = {{"granularity", granularity_name(tensor.scale->granularity)}};
    if (!tensor.scale->block_shape.empty()) {
      scale["block_shape"] = tensor.scale->block_shape;
    }
    scale["source_name"] = tensor.scale->source_name;
    json["scale"] = scale;
  }
  if (tensor.source != PackedSource{}) {
    json["source"] = source_json(tensor.source);
  }
  if (is_in_coded_extent) {
    json["coding"] = tensor_coding_name(tensor.coding);
    json["stored_offset_bytes"] = tensor.stored_offset_bytes;
    json["stored_bytes"] = tensor.stored_bytes;
  }
  return dump(json);
}

std::string write_extent(const PackedExtent& extent) {
  const Json head = {{"name", extent.name},
                     {"tier", tier_name(extent.tier)},
                     {"shard", extent.shard_index},
                     {"offset_bytes", extent.offset_bytes},
                     {"stored_bytes", extent.stored_bytes},
                     {"raw_bytes", extent.raw_bytes},
                     {"codec", extent.codec},
                     {"xxh3_128", extent.checksum}};
  return fmt::format("{},\"tensors\":{}}}", dump_open(head),
                     lines(extent.tensors, "    ", [&](const PackedTensor& tensor) {
                       return write_tensor(tensor, extent.codec != kCodecRaw);
                     }));
}

}  // namespace

std::string write_extent_line(const PackedExtent& extent) {
  std::string line = write_extent(extent);
  // Within strings line breaks are escaped: these are between members.
  std::ranges::replace(line, '\n', ' ');
  return line;
}

namespace {

std::string write_shard(const PackedShard& shard) {
  return dump({{"name", shard.name},
               {"size_bytes", shard.size_bytes},
               {"header_bytes", shard.header_bytes},
               {"header_xxh3_128", shard.header_checksum}});
}

std::string write_source_file(const SourceFile& file) {
  Json json = {{"name", file.name}, {"size_bytes", file.size_bytes}};
  if (file.metadata) {
    json["metadata"] = *file.metadata;
  }
  return dump(json);
}

}  // namespace

std::string seal_manifest(std::string text) {
  const std::string checksum = checksum_hex(std::as_bytes(std::span(text)));
  text += fmt::format("  \"{}\": \"{}\"\n}}\n", kManifestChecksumKey, checksum);
  return text;
}

std::string write_manifest(const Manifest& manifest) {
  std::string text = "{\n";
  const auto add = [&text](std::string_view key, std::string_view value) {
    text += fmt::format("  \"{}\": {},\n", key, value);
  };
  add("format", dump(kPackFormat));
  add("version", dump(kPackVersion));
  add("required_features", "[]");
  add("generator", dump(manifest.generator));
  add("page_bytes", dump(manifest.page_bytes));
  add("source_path", dump(manifest.source_path));
  add("source_fingerprint", dump(manifest.source_fingerprint));
  add("source_files", lines(manifest.source_files, "  ", write_source_file));
  if (manifest.source_index) {
    add("source_index",
        dump({{"name", manifest.source_index->name}, {"members", manifest.source_index->members}}));
  }
  add("plan_xxh3_128", dump(manifest.plan_checksum));
  add("shards", lines(manifest.shards, "  ", write_shard));
  add("extents", lines(manifest.extents, "  ", write_extent));
  add("aliases", dump(Json(manifest.aliases)));
  if (!manifest.stored_aliases.empty()) {
    add("stored_aliases", dump(Json(manifest.stored_aliases)));
  }
  if (!manifest.left_out.empty()) {
    add("left_out", dump(Json(manifest.left_out)));
  }
  return seal_manifest(std::move(text));
}

}  // namespace trash_panda::format
