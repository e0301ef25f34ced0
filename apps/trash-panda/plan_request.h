#pragma once

#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/planner.h"

#include "command_options.h"

namespace trash_panda::cli {

/// Turns the options of `plan` into a request: sizes, percentages of this machine, assignments.
///
/// @param request  What holds where no option says otherwise: that of --from, or the defaults.
///                 Assignments are added to it, "auto" takes a figure back.
/// @retval kUsage  An option can't be understood; the message names the flag or the variable.
Result<plan::PlanRequest> make_plan_request(const PlanOptions& options,
                                            const plan::Hardware& hardware,
                                            plan::PlanRequest request);

/// One of "bf16", "fp16", "fp32", "keep"; bf16 when not given. @retval kUsage  Another word.
Result<std::string_view> compute_dtype_of(const Setting& setting);

}  // namespace trash_panda::cli
