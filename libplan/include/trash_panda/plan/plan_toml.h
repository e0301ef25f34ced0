#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::plan {

/// Version of the plan file that this code writes and reads.
inline constexpr std::uint64_t kPlanVersion = 1;

/// Writes a plan as TOML that a person can edit. Deterministic: equal plans give equal bytes.
[[nodiscard]] std::string write_plan_toml(const Plan& plan);

/// Writes a plan as write_plan_toml() does, with the comments that someone added to another file of
/// it: each stays at its key, table or block, and where there is no such one any more, at the end.
///
/// @param commented  A text that parse_plan_toml() has read.
[[nodiscard]] std::string rewrite_plan_toml(const Plan& plan, std::string_view commented);

/// What write_plan_toml() writes, as JSON: for comparison and for other programs.
/// @see schemas/plan-file.schema.json
[[nodiscard]] std::string plan_file_json(const Plan& plan);

/// Reads a plan back. Unknown keys are errors that name the nearest known one; block names are
/// unique, and blocks are not more than the model. Whether the plan fits its budgets after a change
/// by hand is Plan::fits()'s answer, whether it fits a checkpoint make_pack_layout()'s.
///
/// @param where  Name of the file, for messages, which give line and column.
/// @retval kCorrupt      Not TOML, or a key is missing, unknown or of a wrong type.
/// @retval kUnsupported  A newer plan version.
Result<Plan> parse_plan_toml(std::string_view text, std::string_view where);

}  // namespace trash_panda::plan
