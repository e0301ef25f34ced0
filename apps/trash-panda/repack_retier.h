#pragma once

#include <filesystem>

#include "trash_panda/base/error.h"

#include "command_options.h"
#include "console.h"

namespace trash_panda::cli {

/// Fits a pack to another plan: `repack PACK --plan FILE`, in place unless -o says otherwise.
///
/// @param options  With --plan.
/// @retval kUsage  Another option asks for what only packing anew can do.
/// @retval kStale  The plan was made for another checkpoint than the pack.
Result<void> retier(const RepackOptions& options, const std::filesystem::path& pack,
                    Console& console);

}  // namespace trash_panda::cli
