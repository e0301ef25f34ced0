#include "scale_remarks.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

/// Each costs a read of its own; the scales of a whole diffusion model in fp8 are some hundreds.
constexpr std::size_t kCheckedScalesMax = 2048;
/// Together; a page-sized read costs about the same as a small one, so this bounds the large ones.
constexpr std::uint64_t kCheckedBytesMax = 1 << 20;
/// So that a warning stays a line that somebody reads.
constexpr std::size_t kListedNamesMax = 16;

}  // namespace

std::string list_names(const std::vector<std::string_view>& names) {
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kListedNamesMax; ++i) {
    list += (i == 0 ? "" : ", ") + printable(names[i]);
  }
  return names.size() <= kListedNamesMax
             ? list
             : fmt::format("{} and {} more", list, names.size() - kListedNamesMax);
}

std::string_view special_scale_value(std::span<const float> scales) {
  std::string_view found;
  for (const float scale : scales) {
    if (std::isnan(scale)) {
      return "NaN";
    }
    if (scale == std::numeric_limits<float>::lowest()) {
      found = "unset (the lowest F32)";
    } else if (std::isinf(scale)) {
      found = "infinite";
    } else if (scale < 0) {
      found = "negative";
    } else if (scale == 0 && found.empty()) {
      found = "zero";
    }
  }
  return found;
}

Result<void> warn_of_special_scales(const Checkpoint& checkpoint, WeightTable& table) {
  std::size_t scale_count = 0;
  std::uint64_t size_bytes = 0;
  for (const Weight& weight : table.weights) {
    if (weight.scale) {
      ++scale_count;
      size_bytes += checkpoint.tensors()[weight.scale->tensor_index].size_bytes;
    }
  }
  if (scale_count > kCheckedScalesMax || size_bytes > kCheckedBytesMax) {
    return {};
  }
  std::map<std::string_view, std::vector<std::string_view>> special;
  for (const Weight& weight : table.weights) {
    if (!weight.scale) {
      continue;
    }
    TP_ASSIGN_OR_RETURN(const std::vector<float> values, read_scale(checkpoint, *weight.scale));
    const std::string_view kind = special_scale_value(values);
    if (!kind.empty()) {
      special[kind].push_back(checkpoint.tensors()[weight.scale->tensor_index].name);
    }
  }
  for (const auto& [kind, names] : special) {
    table.warnings.push_back(fmt::format("{} scale{} with a value that is {}: {}", names.size(),
                                         names.size() == 1 ? "" : "s", kind, list_names(names)));
  }
  return {};
}

}  // namespace trash_panda::format
