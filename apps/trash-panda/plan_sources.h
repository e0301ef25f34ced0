#pragma once

#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/plan/plan.h"

#include "command_options.h"
#include "setting.h"

namespace trash_panda::cli {

/// What --from starts from.
struct EarlierPlan {
  std::string text;           ///< Empty without --from.
  plan::PlanRequest request;  ///< The defaults without --from.
};

/// @retval kUsage  Two of the options that read a file want stdin.
Result<void> check_stdin_use(const PlanOptions& options);

/// Reads the plan of --from, with what was changed in it by hand.
Result<EarlierPlan> read_earlier_plan(const Setting& from);

/// The file of a plan, with the comments of the earlier one.
[[nodiscard]] std::string plan_file_text(const plan::Plan& plan, const EarlierPlan& earlier);

/// Adds the size of the KV cache, by the model's config.json, to a request with a context.
/// @return Remarks for the user, one line each.
/// @retval kUnsupported  config.json does not tell. @retval kUsage  It would be no cache.
Result<std::vector<std::string>> measure_context(const format::Checkpoint& checkpoint,
                                                 plan::PlanRequest& request);

/// Adds the times of --profile, where it is given, for these blocks.
Result<void> read_profile(const Setting& profile, const std::vector<plan::PlannedBlock>& blocks,
                          plan::PlanRequest& request);

}  // namespace trash_panda::cli
