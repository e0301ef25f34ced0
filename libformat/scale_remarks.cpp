#include "scale_remarks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
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
/// Values of a scale that are held at a time.
constexpr std::uint64_t kPartElements = 1 << 18;
/// So that a warning stays a line that somebody reads.
constexpr std::size_t kListedNamesMax = 16;

std::size_t special_kind(std::span<const float> scales) {
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
  return gravest;
}

constexpr std::array<std::string_view, 6> kSpecialKinds = {
    "", "zero", "negative", "unset (the lowest F32)", "infinite", "NaN"};

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
  return kSpecialKinds[special_kind(scales)];
}

Result<std::vector<SpecialScale>> find_special_scales(const Checkpoint& checkpoint,
                                                      const std::vector<Weight>& weights) {
  std::vector<SpecialScale> special;
  std::vector<float> values;
  for (const Weight& weight : weights) {
    if (!weight.scale) {
      continue;
    }
    const std::uint64_t count =
        scale_size_bytes(*weight.scale) / (dtype_bits(weight.scale->dtype) / 8);
    std::size_t gravest = 0;
    for (std::uint64_t first = 0; first < count; first += values.size()) {
      values.resize(std::min(count - first, kPartElements));
      TP_RETURN_IF_ERROR(read_scale_part(checkpoint, *weight.scale, first, values));
      gravest = std::max(gravest, special_kind(values));
    }
    if (gravest != 0) {
      special.push_back(
          {.tensor_index = weight.scale->tensor_index, .kind = kSpecialKinds[gravest]});
    }
  }
  return special;
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
  table.are_scale_values_checked =
      scale_count <= kCheckedScalesMax && size_bytes <= kCheckedBytesMax;
  if (!table.are_scale_values_checked) {
    return {};
  }
  TP_ASSIGN_OR_RETURN(table.special_scales, find_special_scales(checkpoint, table.weights));
  std::ranges::copy(special_scale_warnings(checkpoint, table.special_scales),
                    std::back_inserter(table.warnings));
  return {};
}

std::vector<std::string> special_scale_warnings(const Checkpoint& checkpoint,
                                                const std::vector<SpecialScale>& special) {
  std::map<std::string_view, std::vector<std::string_view>> names_by_kind;
  for (const SpecialScale& scale : special) {
    names_by_kind[scale.kind].push_back(checkpoint.tensors()[scale.tensor_index].name);
  }
  std::vector<std::string> warnings;
  for (const auto& [kind, names] : names_by_kind) {
    warnings.push_back(fmt::format("{} scale{} with a value that is {}: {}", names.size(),
                                   names.size() == 1 ? "" : "s", kind, list_names(names)));
  }
  return warnings;
}

}  // namespace trash_panda::format
