#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/simulator.h"

namespace trash_panda::plan {

/// Extents are read, decoded and copied in pieces of about this size: the largest request that
/// drives gain from, and far below what may be in flight to a GPU.
inline constexpr std::uint64_t kChunkBytes = 8'388'608;

/// What a block costs in each channel, in its tier and form. A rate that is not known counts as
/// infinite: @see missing_rates()
///
/// @param has_link  Blocks are computed on a GPU.
[[nodiscard]] BlockCost block_cost(const PlannedBlock& block, const Rates& rates, bool has_link);

/// The pass that a plan's blocks, slots and rates make.
[[nodiscard]] PassModel pass_model(const Plan& plan);

/// Channels that the plan's blocks need and whose rate is not known.
[[nodiscard]] std::vector<Channel> missing_rates(const Plan& plan);

/// Simulates the plan's pass, the first one from a cold start too; nothing while a rate that it
/// needs is not known, or when nothing in it takes time.
[[nodiscard]] std::optional<Prediction> predict(const Plan& plan);

}  // namespace trash_panda::plan
