#pragma once

#include <string>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/plan/hardware.h"
#include "trash_panda/plan/planner.h"

#include "command_options.h"
#include "console.h"
#include "model_input.h"
#include "plan_sources.h"

namespace trash_panda::cli {

/// All that one plan is made from.
struct PlanTask {
  LoadedModel model;
  plan::ModelSummary summary;
  plan::Hardware hardware;  ///< With the rates of the model's drive, as far as they are known.
  EarlierPlan earlier;
  plan::PlanRequest request;
  std::vector<std::string> warnings;  ///< Beside the model's own, one line each.
};

/// Reads what the options of `plan` name, and measures the machine where they ask for that.
/// Options are looked at first: a mistyped one is told before anything is read.
Result<PlanTask> prepare_plan(const PlanOptions& options, Console& console);

}  // namespace trash_panda::cli
