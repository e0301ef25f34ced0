#pragma once

#include <cstdint>
#include <optional>

#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// Estimated size of a block's extent in a form; nothing when the form is not for it, or saves less
/// than 2 % of it.
[[nodiscard]] std::optional<std::uint64_t> coded_size_bytes(const PlannedBlock& block,
                                                            const BlockContent& content,
                                                            StorageForm form);

/// Of a block's expand_bytes, those that are exponent codes before, give or take four bytes.
[[nodiscard]] std::uint64_t decoded_bytes(const PlannedBlock& block);

}  // namespace trash_panda::plan
