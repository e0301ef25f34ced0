#pragma once

#include <vector>

#include "placement_judge.h"
#include "placement_search.h"

namespace trash_panda::plan {

/// Placements that fill VRAM, then RAM, block by block in several orders, passing over blocks that
/// no longer fit: where to start from with blocks of many sizes, whose numbers say little.
[[nodiscard]] std::vector<TierIndexes> filled_placements(const SearchProblem& problem);

}  // namespace trash_panda::plan
