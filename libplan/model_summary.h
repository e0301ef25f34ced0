#pragma once

#include <span>
#include <string_view>

#include "trash_panda/format/tensor_record.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// Page size that plans reckon with: the pack writer's default.
inline constexpr std::uint64_t kPageBytes = 4096;

/// summarize_model() without a checkpoint: `path` and `fingerprint` stay empty.
[[nodiscard]] ModelSummary summarize_tensors(std::span<const format::TensorRecord> tensors,
                                             const format::WeightTable& weights,
                                             const BlockMap& blocks,
                                             std::string_view compute_dtype);

}  // namespace trash_panda::plan
