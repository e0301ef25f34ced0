#pragma once

#include <cstdint>
#include <optional>

#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/planner.h"

#include "placement.h"

namespace trash_panda::plan {

/// Tiers as the earlier Python library chose them, from what is free now: a prefix of the blocks
/// resident, and as few of the others on disk as RAM asks for, evenly spread.
///
/// User's assignments are no part of that algorithm; they are applied to its result.
[[nodiscard]] std::vector<Tier> place_greedily(const ModelSummary& model, const Hardware& hardware,
                                               const PlanRequest& request);

}  // namespace trash_panda::plan
