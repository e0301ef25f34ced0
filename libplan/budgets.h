#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// Automatic budgets are multiples of this, so that a few megabytes more or less on a machine give
/// the same plan.
inline constexpr std::uint64_t kBudgetStepBytes = 256 * kMiB;

/// Memory that a plan may take, and where the number comes from.
struct MemoryBudget {
  std::uint64_t bytes = 0;
  /// A flag of the user's sets it: what does not fit is then an error, not a warning.
  bool is_given = false;
  /// What leaves more room, for hints.
  std::string_view flag;
};

/// What planning may use of a machine.
struct Budgets {
  std::uint64_t ram_limit_bytes = 0;
  std::string ram_limit_source;  ///< "ram" or "cgroup".
  std::string gpu_name;
  std::uint64_t vram_total_bytes = 0;
  MemoryBudget ram;
  MemoryBudget vram;  ///< 0 bytes: base and blocks stay in RAM.
  std::vector<std::string> warnings;
};

/// Rounds an automatic budget down: to kBudgetStepBytes, below that to whole MiB.
[[nodiscard]] std::uint64_t round_budget_down(std::uint64_t bytes);

/// Turns totals, limits and flags into budgets.
///
/// @retval kDevice     The GPU asked for does not exist, or the size of RAM is unknown.
/// @retval kDoesNotFit --min-free-ram leaves nothing.
Result<Budgets> derive_budgets(const Hardware& hardware, const PlanRequest& request);

}  // namespace trash_panda::plan
