#pragma once

#include <string>
#include <sys/stat.h>
#include <vector>

#include "trash_panda/format/checkpoint.h"

namespace trash_panda::format {

/// Notices that a checkpoint's files change while they are read, by what stat() says of them.
class SourceWatch {
 public:
  /// @retval kStale  A file is no longer as it was opened.
  static Result<SourceWatch> start(const Checkpoint& checkpoint);

  /// @retval kStale  A file changed since start(); the message names it.
  Result<void> check() const;

  /// Lengths and times of modification of the files, as text: equal for files that nobody wrote to.
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
