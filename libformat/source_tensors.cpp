#include "source_tensors.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

#include "tensor_size.h"

namespace trash_panda::format {

namespace {

template <class... Args>
std::unexpected<Error> wrong_source(fmt::format_string<Args...> format, Args&&... args) {
  return std::unexpected(
      Error(ErrorCode::kCorrupt, fmt::format(format, std::forward<Args>(args)...))
          .with_reason("schema"));
}

/// Whether values were changed so that the source's bytes can't be made again.
bool is_changed(const PackedTensor& tensor) {
  return tensor.source.is_normalized || tensor.source.is_rounded;
}

/// Whether a scale has twice the width that it has in the source.
bool is_widened(const PackedTensor& tensor) {
  return tensor.is_scale && !is_changed(tensor) && tensor.source.dtype &&
         dtype_bits(*tensor.source.dtype) != dtype_bits(tensor.dtype);
}

/// Whether the source's bytes can be made of a tensor, or it says that they can't.
bool can_give_source(const PackedTensor& tensor) {
  const PackedSource& source = tensor.source;
  if (!source.dtype || is_changed(tensor) ||
      dtype_bits(*source.dtype) == dtype_bits(tensor.dtype)) {
    return true;
  }
  const bool is_half = *source.dtype == Dtype::kBf16 || *source.dtype == Dtype::kF16;
  return tensor.is_narrowed() || (tensor.is_scale && tensor.dtype == Dtype::kF32 && is_half);
}

/// Whether the source's dtype and shape are those of the bytes that are made.
bool has_source_size(const PackedTensor& tensor) {
  return is_changed(tensor) ||
         tensor_size_bytes(tensor.source.dtype.value_or(tensor.dtype),
                           tensor.source.shape.value_or(tensor.shape)) == source_size_bytes(tensor);
}

/// The names in each file of the source.
class FileNames {
 public:
  explicit FileNames(std::size_t file_count) : names_(std::max<std::size_t>(file_count, 1)) {}

  [[nodiscard]] bool has_file(std::uint32_t file_index) const { return file_index < names_.size(); }

  Result<void> add(std::string name, std::uint32_t file_index) {
    if (name == "__metadata__") {
      return wrong_source("name \"{}\" of a tensor in the source is reserved", name);
    }
    const auto [at, is_new] = names_[file_index].insert(std::move(name));
    return is_new ? Result<void>()
                  : wrong_source("source file {} has two tensors named \"{}\"", file_index,
                                 printable(*at));
  }

 private:
  std::vector<std::unordered_set<std::string>> names_;
};

}  // namespace

std::vector<std::string> source_names(const PackedExtent& extent) {
  // Of the scale that follows, by the name that it has in the pack.
  std::unordered_map<std::string, std::string_view> scale_names;
  for (const PackedTensor& tensor : extent.tensors) {
    if (tensor.scale) {
      scale_names.emplace(tensor.name + "_scale", tensor.scale->source_name);
    }
  }
  std::vector<std::string> names;
  names.reserve(extent.tensors.size());
  for (const PackedTensor& tensor : extent.tensors) {
    if (tensor.is_scale && !tensor.source.is_normalized) {
      names.emplace_back(scale_names[tensor.name]);
    } else {
      names.push_back(tensor.source.name.empty() ? tensor.name : tensor.source.name);
    }
  }
  return names;
}

std::size_t scale_index(const PackedExtent& extent, std::size_t weight_index) {
  const std::vector<PackedTensor>& tensors = extent.tensors;
  const std::string name = tensors[weight_index].name + "_scale";
  // Writers put it right behind its weight.
  const auto behind = tensors.begin() + static_cast<std::ptrdiff_t>(weight_index);
  auto found = std::ranges::find(behind, tensors.end(), name, &PackedTensor::name);
  if (found == tensors.end()) {
    found = std::ranges::find(tensors.begin(), behind, name, &PackedTensor::name);
    TP_ASSERT(found != behind);
  }
  return static_cast<std::size_t>(found - tensors.begin());
}

std::uint64_t source_size_bytes(const PackedTensor& tensor) {
  return is_widened(tensor)     ? tensor.size_bytes / 2
         : tensor.is_narrowed() ? tensor.size_bytes * 2
                                : tensor.size_bytes;
}

Result<void> check_sources(const Manifest& manifest) {
  FileNames files(manifest.source_files.size());
  std::unordered_set<std::string_view> scaled;
  for (const PackedExtent& extent : manifest.extents) {
    const std::vector<std::string> names = source_names(extent);
    for (std::size_t t = 0; t < names.size(); ++t) {
      const PackedTensor& tensor = extent.tensors[t];
      if (tensor.scale) {
        scaled.insert(tensor.name);
      }
      if (!files.has_file(tensor.source.file_index)) {
        return wrong_source("tensor \"{}\" is from source file {} of {}", printable(tensor.name),
                            tensor.source.file_index, manifest.source_files.size());
      }
      if (!can_give_source(tensor)) {
        return wrong_source("tensor \"{}\" of {} can't give the {} of its source",
                            printable(tensor.name), dtype_name(tensor.dtype),
                            dtype_name(*tensor.source.dtype));
      }
      if (!has_source_size(tensor)) {
        return wrong_source("the {} bytes of tensor \"{}\" do not fill the shape of its source",
                            tensor.size_bytes, printable(tensor.name));
      }
      TP_RETURN_IF_ERROR(files.add(names[t], tensor.source.file_index));
    }
  }
  for (const auto& [alias, file_index] : manifest.stored_aliases) {
    const auto target = manifest.aliases.find(alias);
    if (target == manifest.aliases.end() || file_index >= manifest.source_files.size()) {
      return wrong_source("stored alias \"{}\" is no alias, or from no source file",
                          printable(alias));
    }
    TP_RETURN_IF_ERROR(files.add(alias, file_index));
    if (scaled.contains(target->second)) {
      TP_RETURN_IF_ERROR(files.add(alias + "_scale", file_index));
    }
  }
  return {};
}

}  // namespace trash_panda::format
