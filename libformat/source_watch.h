#pragma once

#include <string>
#include <sys/stat.h>
#include <vector>

#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// Notices that a checkpoint's files change while they are read, by what stat() says of them: which
/// files they are, their lengths, and their times of modification and of change. Programs that copy
/// set the former back, but no program can set the latter.
class SourceWatch {
 public:
  /// @retval kStale  A file is no longer as it was opened.
  static Result<SourceWatch> start(const Checkpoint& checkpoint);

  /// @retval kStale  A file changed since it was opened; the message names it.
  Result<void> check() const;

  /// Inodes, lengths and times of the files, as text. It differs for files that somebody wrote to,
  /// moved another file over, copied or linked since; it may be another one for the same bytes, so.
  [[nodiscard]] std::string state() const;

  /// Whether `status` is that of one of the checkpoint's files, under whatever name.
  [[nodiscard]] bool has_file(const struct stat& status) const;

 private:
  struct Seen {
    const CheckpointFile* file;
    struct stat status;
  };

  std::vector<Seen> files_;
};

}  // namespace trash_panda::format
