#pragma once

#include <filesystem>
#include <memory>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/log.h"

#include "source_watch.h"

namespace trash_panda::format {

/// The folder `<target>.partial` in which a pack is made, locked against other processes. It ends
/// as `target` by commit(), or is removed by discard().
///
/// Destroying one that was neither committed nor discarded leaves the folder, unlocked: the next
/// run finds and replaces it.
class StagingDirectory {
 public:
  /// Creates, locks and marks the folder; one that an earlier run left is emptied, and that is
  /// logged.
  ///
  /// @param source    Whose files are never removed.
  /// @retval kOutput  `target` exists, its parent does not, or the folder can't be created; or it
  ///                  exists and is not surely what an earlier run left: then nothing is touched.
  /// @retval kLocked  Another process is working on the same target.
  static Result<StagingDirectory> create(FileSystem& file_system,
                                         const std::filesystem::path& target,
                                         const SourceWatch& source, const Logger& log);

  [[nodiscard]] const std::filesystem::path& path() const { return staging_; }
  /// The folder that holds both names.
  [[nodiscard]] const std::filesystem::path& parent() const { return parent_; }

  /// Gives the folder its final name, durably. What is in it must have been synced before.
  ///
  /// On failure nothing is left under the final name.
  Result<void> commit();
  /// Removes the folder and what is in it; a failure to do so is logged.
  void discard(const Logger& log);

 private:
  StagingDirectory(FileSystem& file_system, std::filesystem::path target);

  Result<void> make_directory(const SourceWatch& source, const Logger& log);
  Result<void> lock(const Logger& log);
  Result<void> mark();
  Result<void> clear_left_over(const SourceWatch& source, const Logger& log);

  FileSystem* file_system_;
  std::filesystem::path target_;
  std::filesystem::path parent_;
  std::filesystem::path staging_;
  std::unique_ptr<DirectoryLock> lock_;
};

}  // namespace trash_panda::format
