#pragma once

namespace trash_panda::cli {

/// The whole program: reads arguments and environment, runs the command, reports its failure.
/// @return The exit code.
int run(int argc, char** argv);

}  // namespace trash_panda::cli
