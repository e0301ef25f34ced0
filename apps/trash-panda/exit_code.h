#pragma once

#include "trash_panda/base/error.h"

namespace trash_panda::cli {

/// Exit codes that are not a failure of ErrorCode.
inline constexpr int kExitOk = 0;
/// Of `diff`: the two differ, which is its answer and no failure.
inline constexpr int kExitDiffers = 1;

/// The exit code of a failure, as the manual lists them. kInterrupted gives 128 + the number of
/// the signal that arrived.
[[nodiscard]] int exit_code(ErrorCode code);

}  // namespace trash_panda::cli
