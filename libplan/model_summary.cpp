#include "model_summary.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/format/manifest.h"

namespace trash_panda::plan {
namespace {

constexpr std::array<std::pair<std::string_view, std::optional<format::Dtype>>, 4> kComputeDtypes{{
    {"bf16", format::Dtype::kBf16},
    {"fp16", format::Dtype::kF16},
    {"fp32", format::Dtype::kF32},
    {"keep", std::nullopt},
}};

constexpr std::uint64_t round_up_to(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// What a weight is expanded to; nothing when it is computed with as it is stored.
std::optional<format::Dtype> expanded_dtype(const format::Weight& weight,
                                            std::optional<format::Dtype> compute_dtype) {
  const bool is_float = format::is_fp8(weight.dtype) || format::is_plain_float(weight.dtype) ||
                        weight.dtype == format::Dtype::kGgmlBlock;
  return is_float && compute_dtype != weight.dtype ? compute_dtype : std::nullopt;
}

/// What one weight adds to its block or to the base.
struct WeightSize {
  std::uint64_t packed_bytes;    ///< With its canonical scale, each padded to kTensorAlignment.
  std::uint64_t expanded_bytes;  ///< In the compute dtype; with its scale where it stays stored.
};

WeightSize measure(const format::Weight& weight, const format::TensorRecord& tensor,
                   std::optional<format::Dtype> compute_dtype) {
  const std::uint64_t scale_bytes = weight.scale ? format::scale_size_bytes(*weight.scale) : 0;
  WeightSize size{};
  size.packed_bytes = round_up_to(tensor.size_bytes, format::kTensorAlignment) +
                      round_up_to(scale_bytes, format::kTensorAlignment);
  if (const std::optional<format::Dtype> target = expanded_dtype(weight, compute_dtype)) {
    size.expanded_bytes = format::element_count(tensor) * (format::dtype_bits(*target) / 8);
  } else {
    size.expanded_bytes = tensor.size_bytes + scale_bytes;
  }
  return size;
}

}  // namespace

Result<std::optional<format::Dtype>> parse_compute_dtype(std::string_view name) {
  const auto found =
      std::ranges::find(kComputeDtypes, name, [](const auto& entry) { return entry.first; });
  if (found == kComputeDtypes.end()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("unknown compute dtype {}", printable(name)))
            .with_hint("it is one of bf16, fp16, fp32, keep"));
  }
  return found->second;
}

ModelSummary summarize_tensors(std::span<const format::TensorRecord> tensors,
                               const format::WeightTable& weights, const BlockMap& blocks,
                               std::string_view compute_dtype) {
  const std::optional<format::Dtype> dtype =
      parse_compute_dtype(compute_dtype).value_or(std::nullopt);
  ModelSummary summary;
  summary.tensor_count = tensors.size();
  for (const format::TensorRecord& tensor : tensors) {
    summary.total_bytes += tensor.size_bytes;
  }
  constexpr std::size_t kBase = static_cast<std::size_t>(-1);
  std::vector<std::size_t> owners(tensors.size(), kBase);
  summary.base_stored_bytes = summary.total_bytes;
  for (const BlockGroup& group : blocks.groups) {
    for (const Block& block : group.blocks) {
      for (const std::size_t index : block.tensors) {
        owners[index] = summary.blocks.size();
      }
      PlannedBlock planned;
      planned.name = block.name;
      planned.stored_bytes = block.stored_bytes;
      summary.base_stored_bytes -= block.stored_bytes;
      summary.blocks.push_back(std::move(planned));
    }
  }
  for (const std::size_t tied : weights.tied) {  // Bytes of another tensor: neither read nor kept.
    const std::uint64_t size_bytes = tensors[tied].size_bytes;
    --summary.tensor_count;
    summary.total_bytes -= size_bytes;
    (owners[tied] == kBase ? summary.base_stored_bytes
                           : summary.blocks[owners[tied]].stored_bytes) -= size_bytes;
  }
  std::vector<bool> expands(summary.blocks.size(), false);
  summary.contents.resize(summary.blocks.size());
  for (const format::Weight& weight : weights.weights) {
    const WeightSize size = measure(weight, tensors[weight.tensor_index], dtype);
    const std::size_t owner = owners[weight.tensor_index];
    if (owner == kBase) {
      summary.base_expanded_bytes += size.expanded_bytes;
      continue;
    }
    summary.blocks[owner].extent_bytes += size.packed_bytes;
    summary.blocks[owner].expanded_bytes += size.expanded_bytes;
    const std::uint64_t stored_bytes = tensors[weight.tensor_index].size_bytes;
    if (expanded_dtype(weight, dtype).has_value()) {
      expands[owner] = true;
      summary.blocks[owner].expand_bytes += stored_bytes;
    }
    BlockContent& content = summary.contents[owner];
    content.bf16_bytes += weight.dtype == format::Dtype::kBf16 ? stored_bytes : 0;
    content.fp8_bytes += format::is_fp8(weight.dtype) ? stored_bytes : 0;
  }
  for (std::size_t index = 0; index < summary.blocks.size(); ++index) {
    PlannedBlock& block = summary.blocks[index];
    block.extent_bytes = round_up_to(block.extent_bytes, kPageBytes);
    if (expands[index]) {
      summary.expansion_bytes_max = std::max(summary.expansion_bytes_max, block.expanded_bytes);
    }
  }
  return summary;
}

ModelSummary summarize_model(const format::Checkpoint& checkpoint,
                             const format::WeightTable& weights, const BlockMap& blocks,
                             std::string_view compute_dtype) {
  ModelSummary summary = summarize_tensors(checkpoint.tensors(), weights, blocks, compute_dtype);
  summary.path = checkpoint.path().string();
  summary.fingerprint = checkpoint.fingerprint();
  return summary;
}

}  // namespace trash_panda::plan
