#pragma once

#include <filesystem>
#include <memory>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/log.h"

#include "left_over.h"
#include "source_watch.h"

namespace trash_panda::format {

/// The folder `<target>.partial` in which a pack is made, locked against other processes. It ends
/// as `target` by commit(), or is removed by discard().
///
/// Destroying one that was neither committed nor discarded leaves the folder, unlocked, for the
/// next run.
class StagingDirectory {
 public:
  /// Creates, locks and marks the folder, or takes over one that an earlier run left.
  ///
  /// @param source    Whose files are never removed.
  /// @param is_own    Which names files have that an earlier run may have left.
  /// @retval kOutput  `target` exists, its parent does not, or the folder can't be created; or it
  ///                  exists and is not surely what an earlier run left: then nothing is touched.
  /// @retval kLocked  Another process is working on the same target.
  static Result<StagingDirectory> create(FileSystem& file_system,
                                         const std::filesystem::path& target,
                                         const SourceWatch& source, OwnName is_own,
                                         const Logger& log);

  [[nodiscard]] const std::filesystem::path& path() const { return staging_; }
  /// What it will be, without a slash behind.
  [[nodiscard]] const std::filesystem::path& target() const { return target_; }
  /// The mark of the folder, which holds the journal.
  [[nodiscard]] std::filesystem::path journal_path() const;
  /// Whether an earlier run left files in it.
  [[nodiscard]] bool is_left_over() const { return is_left_over_; }
  /// Removes all but the mark.
  Result<void> clear(const Logger& log);

  /// Gives the folder its final name, durably. What is in it must have been synced before.
  ///
  /// On failure nothing is left under the final name.
  Result<void> commit();
  /// Removes the folder and what is in it; a failure to do so is logged.
  void discard(const Logger& log);

 private:
  StagingDirectory(FileSystem& file_system, std::filesystem::path target);

  Result<void> make_directory(const SourceWatch& source, OwnName is_own, const Logger& log);
  Result<void> lock(const Logger& log);
  Result<void> mark();
  Result<void> take_over(const SourceWatch& source, OwnName is_own);
  Result<void> remove(const Logger& log);

  FileSystem* file_system_;
  std::filesystem::path target_;
  std::filesystem::path parent_;
  std::filesystem::path staging_;
  std::unique_ptr<DirectoryLock> lock_;
  bool is_left_over_ = false;
};

}  // namespace trash_panda::format
