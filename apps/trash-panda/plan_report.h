#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/plan/advice.h"
#include "trash_panda/plan/explanation.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/plan.h"

#include "console.h"
#include "model_input.h"

namespace trash_panda::cli {

/// A plan with what it was made from, for its reports.
struct PlanReport {
  const LoadedModel* model = nullptr;
  const plan::Hardware* hardware = nullptr;
  const plan::Plan* plan = nullptr;
  std::optional<plan::MemoryAdvice> more_ram;
  std::optional<plan::MemoryAdvice> more_vram;
  std::optional<std::vector<plan::BlockExplanation>> why;  ///< Of --why: of all blocks.
  std::size_t gpu_index = 0;
  std::string model_argument;  ///< As the user typed it.
};

/// What `plan` says to people: model, machine, tiers with their budgets, and a bar with one
/// character a block.
[[nodiscard]] std::string plan_text(const PlanReport& report, const Console& console);

/// The same as a JSON document. @see schemas/plan.schema.json
///
/// @param output  Where the plan was written; empty: nowhere.
[[nodiscard]] std::string plan_json(const PlanReport& report,
                                    const std::vector<std::string>& warnings,
                                    std::string_view output);

/// "3 gpu, 2 ram, 1 disk", tiers without blocks left out.
[[nodiscard]] std::string tier_counts(const plan::Plan& plan);

}  // namespace trash_panda::cli
