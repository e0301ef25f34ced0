#include "scale_remarks.h"

#include <algorithm>
#include <array>
#include <bitset>
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

/// From grave to harmless.
constexpr std::array<std::string_view, 5> kSpecialKinds = {
    "NaN", "infinite", "unset (the lowest F32)", "negative", "zero"};

/// Which of kSpecialKinds are among values.
using SpecialKinds = std::bitset<kSpecialKinds.size()>;

SpecialKinds special_kinds(std::span<const float> scales) {
  SpecialKinds kinds;
  for (const float scale : scales) {
    if (std::isnan(scale)) {
      kinds.set(0);
    } else if (std::isinf(scale)) {
      kinds.set(1);
    } else if (scale == std::numeric_limits<float>::lowest()) {
      kinds.set(2);
    } else if (scale < 0) {
      kinds.set(3);
    } else if (scale == 0) {
      kinds.set(4);
    }
  }
  return kinds;
}

std::vector<std::string_view> names_of(SpecialKinds kinds) {
  std::vector<std::string_view> names;
  for (std::size_t kind = 0; kind < kSpecialKinds.size(); ++kind) {
    if (kinds[kind]) {
      names.push_back(kSpecialKinds[kind]);
    }
  }
  return names;
}

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

std::vector<std::string_view> special_scale_values(std::span<const float> scales) {
  return names_of(special_kinds(scales));
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
    SpecialKinds kinds;
    for (std::uint64_t first = 0; first < count; first += values.size()) {
      values.resize(std::min(count - first, kPartElements));
      TP_RETURN_IF_ERROR(read_scale_part(checkpoint, *weight.scale, first, values));
      kinds |= special_kinds(values);
    }
    for (const std::string_view kind : names_of(kinds)) {
      special.push_back({.tensor_index = weight.scale->tensor_index, .kind = kind});
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
