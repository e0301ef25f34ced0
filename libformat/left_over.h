#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"

#include "source_watch.h"

namespace trash_panda::format {

/// Whether a run may have left a file of that name, beside the mark.
using OwnName = bool (*)(std::string_view name);

/// Names of a pack's files.
[[nodiscard]] bool is_pack_name(std::string_view name);

/// Checks that `staging`, which exists, is a folder itself (not a link to one) and this user's.
///
/// @retval kOutput  It is not.
Result<void> check_left_over_folder(const std::filesystem::path& staging);

/// Checks that all in a folder is what an interrupted run left, so that it may be removed: nothing
/// at all, or the mark and regular files, or links to shards, with names of ours, none of them the
/// source's.
///
/// @param entries  All that is in `staging`.
/// @retval kOutput  It is not; the message names the folder and what is in the way.
Result<void> check_left_over_entries(const std::filesystem::path& staging,
                                     const std::vector<std::filesystem::path>& entries,
                                     const SourceWatch& source, OwnName is_own);

}  // namespace trash_panda::format
