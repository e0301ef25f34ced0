#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trash_panda/format/pack_unpack.h"

#include "foreign_json.h"
#include "source_tensors.h"
#include "tensor_size.h"
#include "unpacked_header.h"

namespace trash_panda::format {

namespace {

constexpr std::string_view kFileSuffix = ".safetensors";
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kIndexSuffix = ".safetensors.index.";

/// Collects the tensors of each file of the source.
class SourceFiles {
 public:
  explicit SourceFiles(const Manifest& manifest) : manifest_(manifest) {
    layout_.files.resize(std::max<std::size_t>(manifest.source_files.size(), 1));
    for (std::size_t i = 0; i < manifest.source_files.size(); ++i) {
      layout_.files[i].name = manifest.source_files[i].name;
      layout_.files[i].metadata = manifest.source_files[i].metadata;
    }
  }

  UnpackLayout collect() {
    for (std::size_t e = 0; e < manifest_.extents.size(); ++e) {
      add_extent(e);
    }
    find_places();
    for (const auto& [alias, file_index] : manifest_.stored_aliases) {
      add_alias(alias, file_index);
    }
    return std::move(layout_);
  }

 private:
  void add_extent(std::size_t extent_index) {
    const std::vector<PackedTensor>& tensors = manifest_.extents[extent_index].tensors;
    std::vector<std::string> names = source_names(manifest_.extents[extent_index]);
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const PackedSource& source = tensors[t].source;
      if (source.is_rounded || (tensors[t].is_scale && source.is_normalized)) {
        layout_.normalized.push_back(names[t]);
      }
      add(std::move(names[t]), extent_index, t, source.file_index);
    }
  }

  void find_places() {
    if (manifest_.stored_aliases.empty()) {
      return;
    }
    for (std::size_t e = 0; e < manifest_.extents.size(); ++e) {
      const std::vector<PackedTensor>& tensors = manifest_.extents[e].tensors;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        places_.emplace(tensors[t].name, std::pair(e, t));
      }
    }
  }

  void add_alias(const std::string& alias, std::uint32_t file_index) {
    const auto [e, t] = places_.at(manifest_.aliases.at(alias));
    add(alias, e, t, file_index);
    const std::vector<PackedTensor>& tensors = manifest_.extents[e].tensors;
    if (tensors[t].scale) {
      layout_.normalized.push_back(alias + "_scale");
      add(alias + "_scale", e, scale_index(manifest_.extents[e], t), file_index);
    }
  }

  void add(std::string name, std::size_t extent_index, std::size_t tensor_index,
           std::uint32_t file_index) {
    const PackedTensor& tensor = manifest_.extents[extent_index].tensors[tensor_index];
    const bool is_as_in_source = !tensor.source.is_normalized && !tensor.source.is_rounded;
    const Dtype dtype =
        is_as_in_source && tensor.source.dtype ? *tensor.source.dtype : tensor.dtype;
    const Shape& shape =
        is_as_in_source && tensor.source.shape ? *tensor.source.shape : tensor.shape;
    const bool is_widened = tensor.is_scale && dtype_bits(dtype) != dtype_bits(tensor.dtype);
    layout_.files[file_index].tensors.push_back({.name = std::move(name),
                                                 .dtype = dtype,
                                                 .shape = shape,
                                                 .size_bytes = source_size_bytes(tensor),
                                                 .extent_index = extent_index,
                                                 .tensor_index = tensor_index,
                                                 .is_widened = is_widened,
                                                 .is_narrowed = tensor.is_narrowed()});
  }

  const Manifest& manifest_;
  UnpackLayout layout_;
  /// Extent and tensor, by the name in the pack.
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> places_;
};

/// The order of the safetensors library: widest elements first, so that all are aligned.
void sort_tensors(UnpackedFile& file) {
  std::ranges::sort(file.tensors, [](const UnpackedTensor& a, const UnpackedTensor& b) {
    const unsigned a_bits = dtype_bits(a.dtype);
    const unsigned b_bits = dtype_bits(b.dtype);
    return a_bits != b_bits     ? a_bits > b_bits
           : a.dtype != b.dtype ? a.dtype > b.dtype
                                : a.name < b.name;
  });
}

/// Fills files one after the other, in the order of the model.
std::vector<UnpackedFile> shard(std::vector<UnpackedFile> sources, std::uint64_t file_bytes_max) {
  std::vector<UnpackedTensor> tensors;
  std::optional<std::map<std::string, std::string>> metadata;
  for (UnpackedFile& source : sources) {
    std::ranges::move(source.tensors, std::back_inserter(tensors));
    if (source.metadata && !metadata) {
      metadata.emplace();
    }
    if (source.metadata) {
      metadata->insert(source.metadata->begin(), source.metadata->end());
    }
  }
  std::ranges::stable_sort(tensors, {}, [](const UnpackedTensor& tensor) {
    return std::pair(tensor.extent_index, tensor.tensor_index);
  });
  std::vector<UnpackedFile> files(1);
  std::uint64_t filled_bytes = 0;
  for (UnpackedTensor& tensor : tensors) {
    if (filled_bytes > 0 &&
        tensor.size_bytes > file_bytes_max - std::min(file_bytes_max, filled_bytes)) {
      files.emplace_back();
      filled_bytes = 0;
    }
    filled_bytes += tensor.size_bytes;
    files.back().tensors.push_back(std::move(tensor));
  }
  for (UnpackedFile& file : files) {
    file.metadata = metadata;
  }
  return files;
}

bool is_plain_safetensors_name(const std::string& name) {
  return name.size() > kFileSuffix.size() && name.ends_with(kFileSuffix) &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

/// "model" of "model.safetensors.index.json", which shards are named after.
std::string_view stem_of_index(std::string_view name) {
  const std::size_t end = name.find(kIndexSuffix);
  return end == std::string_view::npos || end == 0 ? "model" : name.substr(0, end);
}

std::string index_name(const Manifest& manifest) {
  return manifest.source_index && is_unpacked_index_name(manifest.source_index->name)
             ? manifest.source_index->name
             : std::string(kIndexName);
}

/// The text of an index without its map. Sizes are the source's own where nothing was changed.
std::string index_members(const Manifest& manifest, const UnpackLayout& layout) {
  using Json = nlohmann::ordered_json;
  std::uint64_t total_bytes = 0;
  for (const UnpackedFile& file : layout.files) {
    for (const UnpackedTensor& tensor : file.tensors) {
      total_bytes += tensor.size_bytes;
    }
  }
  if (!manifest.source_index) {
    return Json{{"metadata", {{"total_size", total_bytes}}}}.dump();
  }
  auto members = parse_foreign_json<Json>(manifest.source_index->members);
  TP_ASSERT(members.is_object());
  const auto metadata = members.find("metadata");
  const bool is_changed = !layout.normalized.empty() || !manifest.left_out.empty();
  if (!is_changed || metadata == members.end() || !metadata->contains("total_size")) {
    return manifest.source_index->members;
  }
  (*metadata)["total_size"] = total_bytes;
  return members.dump();
}

/// Names that everybody looks for, unless all files have usable ones of their own.
void name_files(std::vector<UnpackedFile>& files, std::string_view stem) {
  const auto are_distinct = [&] {
    std::vector<std::string> names;
    for (const UnpackedFile& file : files) {
      names.push_back(file.name);
    }
    std::ranges::sort(names);
    return std::ranges::adjacent_find(names) == names.end();
  };
  const bool are_usable = std::ranges::all_of(
      files, [](const UnpackedFile& file) { return is_plain_safetensors_name(file.name); });
  if (are_usable && are_distinct()) {
    return;
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    files[i].name = files.size() == 1
                        ? fmt::format("{}.safetensors", stem)
                        : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, files.size());
  }
}

}  // namespace

UnpackLayout lay_out_unpacked(const Manifest& manifest,
                              std::optional<std::uint64_t> file_bytes_max) {
  UnpackLayout layout = SourceFiles(manifest).collect();
  if (file_bytes_max) {
    layout.files = shard(std::move(layout.files), *file_bytes_max);
  }
  const std::string index = index_name(manifest);
  name_files(layout.files, stem_of_index(index));
  if (layout.files.size() > 1 || (manifest.source_index && !file_bytes_max)) {
    layout.index = CheckpointIndex{.name = index, .members = index_members(manifest, layout)};
  }
  for (UnpackedFile& file : layout.files) {
    sort_tensors(file);
    file.size_bytes = make_unpacked_header(file).size();
    for (const UnpackedTensor& tensor : file.tensors) {
      file.size_bytes += tensor.size_bytes;
    }
  }
  return layout;
}

}  // namespace trash_panda::format
