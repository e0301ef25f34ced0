#include "gguf_weights.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trash_panda/base/printable.h"

namespace trash_panda::format {

namespace {

/// Values that name the original, the surest first. @see gguf.md, "Source metadata"
constexpr std::array<const char*, 4> kSourceKeys = {"general.source.huggingface.repository",
                                                    "general.source.repo_url", "general.source.url",
                                                    "general.base_model.0.repo_url"};

/// Blocks by their own name, numbers as those of any checkpoint.
std::string storage_name(const TensorRecord& tensor) {
  return tensor.ggml_type != nullptr ? std::string(tensor.ggml_type->name)
                                     : storage_name(tensor.dtype, std::nullopt, {});
}

}  // namespace

std::string gguf_source(const Checkpoint& checkpoint) {
  for (const char* key : kSourceKeys) {
    for (const CheckpointFile& file : checkpoint.files()) {
      const auto found = file.metadata.find(key);
      if (file.kind == FileKind::kGguf && found != file.metadata.end() && !found->second.empty()) {
        return printable(found->second);
      }
    }
  }
  return {};
}

WeightTable list_gguf_weights(const Checkpoint& checkpoint) {
  WeightTable table;
  table.are_scale_values_checked = true;  // There are none.
  std::map<std::string, std::uint64_t> bytes_by_type;
  table.weights.reserve(checkpoint.tensors().size());
  for (std::size_t index = 0; index < checkpoint.tensors().size(); ++index) {
    const TensorRecord& tensor = checkpoint.tensors()[index];
    bytes_by_type[storage_name(tensor)] += tensor.size_bytes;
    table.weights.push_back(
        {.name = tensor.name, .tensor_index = index, .dtype = tensor.dtype, .scale = {}});
  }
  std::vector<std::pair<std::string, std::uint64_t>> types(bytes_by_type.begin(),
                                                           bytes_by_type.end());
  std::ranges::stable_sort(types, std::ranges::greater(),
                           &std::pair<std::string, std::uint64_t>::second);
  for (const auto& [type, bytes] : types) {
    table.formats.push_back(type);
  }
  return table;
}

}  // namespace trash_panda::format
