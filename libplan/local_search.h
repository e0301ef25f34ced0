#pragma once

#include <cstdint>

#include "placement_judge.h"
#include "placement_search.h"

namespace trash_panda::plan {

/// Improves the judge's best placement: moves a block to another tier or exchanges the tiers of
/// two, as long as that makes the pass shorter by more than a part of it; a block moves to a faster
/// tier also where the pass stays as long.
///
/// Ends where no such step helps any more, or when the simulations have played their passes. Most
/// steps are ruled out without a simulation of their own: by memory, by the sums of the channels,
/// or since not even the block that becomes faster would shorten the pass by itself.
///
/// @param least_gain  The part, not negative.
/// @param passes_max  What the simulations may play for it, about.
void improve_placement(const SearchProblem& problem, double least_gain, std::uint64_t passes_max,
                       PlacementJudge& judge);

}  // namespace trash_panda::plan
