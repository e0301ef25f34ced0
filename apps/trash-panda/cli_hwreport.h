#pragma once

#include "cli_parser.h"
#include "command_options.h"

namespace trash_panda::cli {

/// Defines the options of `hwreport`.
void define_hwreport(CommandDefinition& command, HwreportOptions& options);

}  // namespace trash_panda::cli
