#include "scale_remarks.h"

#include <algorithm>
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
  // From harmless to grave; each kind is looked for in all values.
  std::size_t gravest = 0;
  for (const float scale : scales) {
    std::size_t kind = scale == 0 ? 1 : scale < 0 ? 2 : 0;
    if (scale == std::numeric_limits<float>::lowest()) {
      kind = 3;
    } else if (std::isinf(scale)) {
      kind = 4;
    } else if (std::isnan(scale)) {
      kind = 5;
    }
    gravest = std::max(gravest, kind);
  }
  constexpr std::array<std::string_view, 6> kNames = {
      "", "zero", "negative", "unset (the lowest F32)", "infinite", "NaN"};
  return kNames[gravest];
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
