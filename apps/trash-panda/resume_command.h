#pragma once

#include <string>

#include "command_options.h"

namespace trash_panda::cli {

/// The line that takes on with a repack which was interrupted, for a POSIX shell.
[[nodiscard]] std::string resume_command(const RepackOptions& options);

/// The line that begins an unpacking which was interrupted again.
[[nodiscard]] std::string unpack_command(const UnpackOptions& options);

}  // namespace trash_panda::cli
