#pragma once

#include <filesystem>
#include <memory>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"

#include "command_options.h"
#include "console.h"

namespace trash_panda::cli {

/// Where a pack goes.
struct PackTarget {
  std::filesystem::path final;
  /// Where it is written first: `final` itself, or a name beside it when a pack is replaced.
  std::filesystem::path staged;
  /// Where the disk tier's shard goes, by --disk-dir: as PackOptions::disk_prefix.
  std::filesystem::path disk_prefix;
  bool replaces = false;
  /// On the pack that is replaced, so that two runs don't replace it at a time.
  std::unique_ptr<DirectoryLock> lock;
};

enum class TargetUse {
  kDryRun,  ///< All is checked, nothing is touched.
  kWrite,
};

/// Finds the folder to write: -o, else MODEL.panda beside the model; in the current folder for a
/// model from the Hugging Face cache, which is no place for packs.
///
/// @param model_path  Where the model was found.
/// @retval kOutput  It exists and --force is not given, or is no pack, or its folder is missing or
///                  can't be written; the message names what in it is no part of a pack.
/// @retval kLocked  Another process is replacing it.
Result<PackTarget> choose_target(const RepackOptions& options,
                                 const std::filesystem::path& model_path, TargetUse use,
                                 Console& console);

/// Locks a pack against other runs that would replace it.
/// @return Null where its filesystem has no locks, which is warned of.
/// @retval kLocked  Another process is replacing it, or making another pack of it.
Result<std::unique_ptr<DirectoryLock>> lock_pack(const std::filesystem::path& pack,
                                                 Console& console);

/// Puts a complete pack under its final name; the pack that was there is removed after that. Where
/// that fails, a warning says what is left.
/// @retval kOutput  The system refused; the new pack is then left under its staged name.
Result<void> publish_pack(const PackTarget& target, Console& console);

}  // namespace trash_panda::cli
