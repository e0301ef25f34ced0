#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/log.h"

/// Shards that lie on another drive than their pack, which holds a symbolic link by their name.
///
/// The file behind it is named `<prefix>.<eight hex digits>.<shard name>`, so that no two packs
/// meet in one folder, and records which link it was made for, so that what is removed with a pack
/// is surely its own: copies of a pack have links to the same file.
namespace trash_panda::format {

/// A name for a new file that no other pack has.
///
/// @param prefix  Absolute; ends in what people are to recognize the pack by.
[[nodiscard]] std::filesystem::path new_linked_file(const std::filesystem::path& prefix,
                                                    std::string_view shard_name);

/// The file that a shard's link names, whether or not there is one; nothing where `shard` is no
/// link that a writer of packs made.
[[nodiscard]] std::optional<std::filesystem::path> linked_file(const std::filesystem::path& shard);

/// What tells a file, or a link itself, from its copies: its inode, and when that was made. Empty
/// where there is none.
[[nodiscard]] std::string file_identity(const std::filesystem::path& path);

/// Records with the file behind a shard's link, which exists, that it is of this link and no other:
/// in an extended attribute, if its filesystem has such. Does nothing for other files.
void own_linked_file(const std::filesystem::path& shard);

/// Removes a file of a pack, and first what lies behind it if it is a link of a shard: unless the
/// link has another name, in a pack that was made of this one for another plan; and unless the file
/// is not surely of this link, as in a pack that was copied with its links, which is logged.
///
/// @retval kOutput  The system refused.
Result<void> remove_pack_file(FileSystem& file_system, const std::filesystem::path& path,
                              const Logger& log);

}  // namespace trash_panda::format
