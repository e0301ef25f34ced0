#include "weight_ties.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace trash_panda::format {

namespace {

/// The part of a name up to its last number: what numbered block it would belong to, if any.
std::string_view numbered_part(std::string_view name) {
  std::size_t end = name.size();
  while (end > 0) {
    const std::size_t dot = name.rfind('.', end - 1);
    const std::size_t begin = dot == std::string_view::npos ? 0 : dot + 1;
    const std::string_view part = name.substr(begin, end - begin);
    if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) {
      return name.substr(0, end);
    }
    end = begin == 0 ? 0 : dot;
  }
  return {};
}

using Place = std::pair<std::uint32_t, std::uint64_t>;

Place place_in_files(const TensorRecord& tensor) {
  return {tensor.file_index, tensor.offset_bytes};
}

/// All that decides what a scale's values are.
struct ScaleKey {
  Place place;
  Dtype stored_dtype;
  Shape stored_shape;
  Shape stored_strides;
  Granularity granularity;
  Shape shape;
  Shape block_shape;
  Dtype dtype;
  ScaleTransform transform;

  auto operator<=>(const ScaleKey&) const = default;
};

/// All that decides what a weight of a known place is.
struct WeightKey {
  std::string_view numbered_part;
  Dtype dtype;
  Shape stored_shape;
  Shape stored_strides;
  std::optional<ScaleKey> scale;

  auto operator<=>(const WeightKey&) const = default;
};

WeightKey key_of_tie(const Checkpoint& checkpoint, const Weight& weight) {
  const TensorRecord& payload = checkpoint.tensors()[weight.tensor_index];
  std::optional<ScaleKey> scale;
  if (weight.scale) {
    const TensorRecord& stored = checkpoint.tensors()[weight.scale->tensor_index];
    scale = {.place = place_in_files(stored),
             .stored_dtype = stored.dtype,
             .stored_shape = stored.shape,
             .stored_strides = stored.strides,
             .granularity = weight.scale->granularity,
             .shape = weight.scale->shape,
             .block_shape = weight.scale->block_shape,
             .dtype = weight.scale->dtype,
             .transform = weight.scale->transform};
  }
  return {.numbered_part = numbered_part(weight.name),
          .dtype = weight.dtype,
          .stored_shape = payload.shape,
          .stored_strides = payload.strides,
          .scale = std::move(scale)};
}

}  // namespace

void merge_tied_weights(const Checkpoint& checkpoint, WeightTable& table) {
  const auto payload_of = [&](std::size_t weight) -> const TensorRecord& {
    return checkpoint.tensors()[table.weights[weight].tensor_index];
  };
  std::vector<bool> is_tied(table.weights.size());
  std::size_t end = 0;
  for (std::size_t begin = 0; begin < is_tied.size(); begin = end) {
    const Place place = place_in_files(payload_of(begin));
    for (end = begin + 1; end < is_tied.size() && place_in_files(payload_of(end)) == place;) {
      ++end;
    }
    std::map<WeightKey, std::size_t> first_of;
    for (std::size_t i = begin; end - begin > 1 && i < end; ++i) {
      const Weight& weight = table.weights[i];
      if (payload_of(i).size_bytes == 0) {
        continue;
      }
      const auto [first, is_new] = first_of.try_emplace(key_of_tie(checkpoint, weight), i);
      if (!is_new) {
        is_tied[i] = true;
        table.aliases.emplace(weight.name, table.weights[first->second].name);
        table.tied.push_back(weight.tensor_index);
        if (weight.scale) {
          table.tied.push_back(weight.scale->tensor_index);
        }
      }
    }
  }
  if (table.tied.empty()) {
    return;
  }
  std::vector<Weight> kept;
  kept.reserve(table.weights.size() - table.aliases.size());
  for (std::size_t i = 0; i < is_tied.size(); ++i) {
    if (!is_tied[i]) {
      kept.push_back(std::move(table.weights[i]));
    }
  }
  table.weights = std::move(kept);
}

}  // namespace trash_panda::format
