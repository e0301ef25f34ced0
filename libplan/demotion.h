#pragma once

#include <cstdint>
#include <vector>

#include "trash_panda/plan/plan.h"

namespace trash_panda::plan {

/// The order in which a tier's blocks give up their place when memory is short at load: any number
/// of first ones lies spread over the tier, so that what then streams does not bunch up.
[[nodiscard]] std::vector<std::uint64_t> demotion_order(const Plan& plan, Tier tier);

}  // namespace trash_panda::plan
