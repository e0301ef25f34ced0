#include "weight_formats.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace trash_panda::format {

namespace {

std::string lower_case(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  return lower;
}

/// "fp8" is E4M3FN to everybody; the others say what they are.
std::string payload_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF8E4M3:
      return "fp8";
    case Dtype::kF8E5M2:
      return "fp8 e5m2";
    case Dtype::kF8E4M3Fnuz:
      return "fp8 e4m3fnuz";
    case Dtype::kF8E5M2Fnuz:
      return "fp8 e5m2fnuz";
    case Dtype::kF16:
      return "fp16";
    case Dtype::kF32:
      return "fp32";
    case Dtype::kF64:
      return "fp64";
    default:
      return lower_case(dtype_name(dtype));
  }
}

std::string scale_name(Granularity granularity, const Shape& block_shape) {
  if (granularity != Granularity::kBlock) {
    return fmt::format("scale per {}", granularity_name(granularity));
  }
  if (block_shape[0] == 1) {
    return block_shape[1] == 1 ? std::string("scale per element")
                               : fmt::format("scale per group of {}", block_shape[1]);
  }
  return fmt::format("scale per {}x{} block", block_shape[0], block_shape[1]);
}

std::string describe(const Weight& weight) {
  return weight.scale
             ? storage_name(weight.dtype, weight.scale->granularity, weight.scale->block_shape)
             : storage_name(weight.dtype, std::nullopt, {});
}

/// What a description depends on: a checkpoint has few of these, and many weights of each.
using FormatKey = std::tuple<Dtype, bool, Granularity, Shape>;

FormatKey key_of(const Weight& weight) {
  if (!weight.scale) {
    return {weight.dtype, false, Granularity::kTensor, {}};
  }
  return {weight.dtype, true, weight.scale->granularity, weight.scale->block_shape};
}

}  // namespace

std::string storage_name(Dtype dtype, std::optional<Granularity> granularity,
                         const Shape& block_shape) {
  const std::string payload = payload_name(dtype);
  if (granularity) {
    return fmt::format("{} ({})", payload, scale_name(*granularity, block_shape));
  }
  return is_fp8(dtype) ? payload + " (no scale)" : payload;
}

std::vector<std::string> describe_formats(const Checkpoint& checkpoint,
                                          const std::vector<Weight>& weights) {
  struct Found {
    const Weight* example;
    std::uint64_t size_bytes;
  };
  std::map<FormatKey, Found> found;
  auto at = found.end();  // Neighbours are often alike.
  for (const Weight& weight : weights) {
    FormatKey key = key_of(weight);
    if (at == found.end() || at->first != key) {
      at = found.try_emplace(std::move(key), Found{&weight, 0}).first;
    }
    at->second.size_bytes += checkpoint.tensors()[weight.tensor_index].size_bytes;
  }
  std::vector<std::pair<std::uint64_t, std::string>> by_size;
  by_size.reserve(found.size());
  for (const auto& [key, format] : found) {
    by_size.emplace_back(format.size_bytes, describe(*format.example));
  }
  std::ranges::stable_sort(by_size, std::ranges::greater(),
                           &std::pair<std::uint64_t, std::string>::first);
  std::vector<std::string> names;
  names.reserve(by_size.size());
  for (auto& [size_bytes, name] : by_size) {
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace trash_panda::format
