#pragma once

#include <filesystem>
#include <vector>

#include "trash_panda/base/error.h"
#include "trash_panda/base/log.h"
#include "trash_panda/format/checkpoint.h"

namespace trash_panda::cli {

/// Whether a folder is a pack, if a damaged one: it holds a manifest.json that says so, or one and
/// a shard of a pack. Many other things have a file of that name.
[[nodiscard]] bool is_pack(const std::filesystem::path& path);

/// Paths of all that is in a pack, once it is certain that nothing else is: every entry is a
/// regular file, or a shard's link to one, and either the manifest, the plan, the mark of a pack in
/// the making or a shard that the manifest lists.
///
/// @retval kOutput  It is no pack, or the manifest is damaged, or there is more in it: the message
///                  names what.
Result<std::vector<std::filesystem::path>> list_replaceable_pack(const std::filesystem::path& path);

/// @retval kOutput  A file of `checkpoint` lies in the folder, under whatever name.
Result<void> refuse_source_inside(const std::filesystem::path& folder,
                                  const format::Checkpoint& checkpoint);

/// Removes a pack, file by file, shards on other drives included if they are surely its own: what
/// came into its folder meanwhile is never removed with it, nor what a link of the user's names.
///
/// @param log  Is told what is left.
/// @retval kOutput  It is no longer only a pack, or the system refused.
Result<void> remove_pack(const std::filesystem::path& path, const Logger& log);

}  // namespace trash_panda::cli
