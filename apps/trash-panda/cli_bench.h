#pragma once

#include "cli_parser.h"
#include "command_options.h"

namespace trash_panda::cli {

/// Defines the options of `bench`.
void define_bench(CommandDefinition& command, BenchOptions& options);

}  // namespace trash_panda::cli
