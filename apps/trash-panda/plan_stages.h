#pragma once

#include "trash_panda/base/error.h"

#include "command_options.h"
#include "console.h"

namespace trash_panda::cli {

/// `plan --stages FILE`: plans the models of a pipeline one after the other.
Result<void> run_plan_stages(const PlanOptions& options, Console& console);

}  // namespace trash_panda::cli
