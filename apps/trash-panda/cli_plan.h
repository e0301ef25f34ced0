#pragma once

#include "cli_parser.h"
#include "command_options.h"

namespace trash_panda::cli {

// The commands about plans: `plan`, and those that read what it wrote.

void define_plan(CommandDefinition& command, PlanOptions& options);
void define_simulate(CommandDefinition& command, SimulateOptions& options);
void define_explain(CommandDefinition& command, ExplainOptions& options);
void define_diff(CommandDefinition& command, DiffOptions& options);

}  // namespace trash_panda::cli
