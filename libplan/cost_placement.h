#pragma once

#include <optional>

#include "placement.h"

namespace trash_panda::plan {

/// Chooses tiers, forms and numbers of slots so that the simulated pass is shortest; nothing when
/// nothing fits, nothing streams, or a rate that placements differ by is not known.
///
/// Simpler placements are considered too, so that the result is never slower than they are: the
/// earlier library's, and that of place_blocks().
///
/// @param others  Placements to be considered besides.
[[nodiscard]] std::optional<Placement> place_by_cost(const PlacementProblem& problem,
                                                     const std::vector<Placement>& others);

}  // namespace trash_panda::plan
