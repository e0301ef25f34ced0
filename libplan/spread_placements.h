#pragma once

#include "placement_judge.h"
#include "placement_search.h"

namespace trash_panda::plan {

/// Lets the judge consider placements that spread residents among the blocks and disk blocks among
/// those that stream, in all numbers, by kinds of blocks; and those that keep a prefix resident.
///
/// Which placements there are depends on the blocks alone, not on memory or rates; which of them
/// are looked at, on what could still be better.
///
/// @param passes_max  What the simulations may play for it, about.
void consider_spread_placements(const SearchProblem& problem, std::uint64_t passes_max,
                                PlacementJudge& judge);

}  // namespace trash_panda::plan
