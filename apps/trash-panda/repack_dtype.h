#pragma once

#include <filesystem>

#include "trash_panda/base/error.h"

#include "command_options.h"
#include "console.h"
#include "repack_plan.h"

namespace trash_panda::cli {

/// Decides which weights of a pack are stored in another dtype, by --dtype, and enters them in the
/// layout. Reads of the checkpoint what that takes; in a dry run a little only, and nothing where
/// an interrupted run is taken on with.
///
/// @param staged         Where the pack is written, as PackTarget has it.
/// @retval kUsage        --dtype is none of its words.
/// @retval kInterrupted  The user asked to stop.
Result<void> choose_dtypes(const RepackOptions& options, const std::filesystem::path& staged,
                           RepackInput& input, Console& console);

}  // namespace trash_panda::cli
