#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "trash_panda/plan/explanation.h"
#include "trash_panda/plan/plan.h"

#include "json_text.h"

namespace trash_panda::cli {

/// Why blocks wait where they do: one row for all that have the same tier, reason and times, then
/// what binds the step. Of `plan --why`.
[[nodiscard]] std::string why_text(const plan::Plan& plan,
                                   std::span<const plan::BlockExplanation> blocks);

/// The same with what moving one block of a row to each other tier would change.
[[nodiscard]] std::string explain_text(const plan::Plan& plan,
                                       std::span<const plan::BlockExplanation> blocks);

/// Block by block, for both. @see schemas/explain.schema.json
[[nodiscard]] Json explanations_json(const plan::Plan& plan,
                                     std::span<const plan::BlockExplanation> blocks);

/// Indexes of all blocks.
[[nodiscard]] std::vector<std::size_t> all_blocks(const plan::Plan& plan);

}  // namespace trash_panda::cli
