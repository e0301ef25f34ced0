#pragma once

#include <string_view>

#include "trash_panda/base/error.h"

namespace trash_panda::cli {

/// Exit codes that are not a failure of ErrorCode.
inline constexpr int kExitOk = 0;

/// The exit code of a failure, as the manual lists them. kInterrupted gives 128 + the number of
/// the signal that arrived.
[[nodiscard]] int exit_code(ErrorCode code);

/// The class of a failure in JSON where its reason says nothing finer: "missing", "does_not_fit".
[[nodiscard]] std::string_view error_code_name(ErrorCode code);

}  // namespace trash_panda::cli
