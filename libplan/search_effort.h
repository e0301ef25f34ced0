#pragma once

#include <cstdint>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// Passes of 57 or more blocks that the simulations of one plan's searches play at most, give or
/// take one simulation: some 10 ms for 57 blocks and 0.2 s for 1,000. Of fewer blocks more passes
/// are played in that time. Making sure at the end that no step helps may take some of these more,
/// of which it rarely needs a tenth.
inline constexpr std::uint64_t kSearchPassesMax = 24'000;

/// make_plan() with another limit, for plans that only answer a question.
Result<Plan> make_plan_within(std::uint64_t search_passes_max, const ModelSummary& model,
                              const Hardware& hardware, const PlanRequest& request);

}  // namespace trash_panda::plan
