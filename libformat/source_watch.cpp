#include "source_watch.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda::format {

namespace {

Result<struct stat> stat_of(const CheckpointFile& file) {
  struct stat status = {};
  if (::stat(file.path.c_str(), &status) != 0) {
    return std::unexpected(
        Error::from_errno(errno, fmt::format("can't stat {}", printable(file.path)))
            .with_code(ErrorCode::kStale));
  }
  return status;
}

Error changed(const CheckpointFile& file) {
  return Error(ErrorCode::kStale, fmt::format("{} changed while it was read", printable(file.path)))
      .with_hint("wait until its download or copy is complete, then try again");
}

bool is_same(const struct timespec& a, const struct timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

}  // namespace

Result<SourceWatch> SourceWatch::start(const Checkpoint& checkpoint) {
  SourceWatch watch;
  for (const CheckpointFile& file : checkpoint.files()) {
    watch.files_.push_back({.file = &file, .status = file.opened});
  }
  TP_RETURN_IF_ERROR(watch.check());
  return watch;
}

Result<void> SourceWatch::check() const {
  for (const auto& [file, before] : files_) {
    TP_ASSIGN_OR_RETURN(const struct stat now, stat_of(*file));
    if (now.st_dev != before.st_dev || now.st_ino != before.st_ino ||
        now.st_size != before.st_size || !is_same(now.st_mtim, before.st_mtim) ||
        !is_same(now.st_ctim, before.st_ctim)) {
      return std::unexpected(changed(*file));
    }
  }
  return {};
}

std::string SourceWatch::state() const {
  std::string text;
  for (const auto& [file, status] : files_) {
    // Not the device: some filesystems have another number after each start of the machine.
    text += fmt::format("{} {} {}.{:09} {}.{:09}\n", status.st_ino, status.st_size,
                        status.st_mtim.tv_sec, status.st_mtim.tv_nsec, status.st_ctim.tv_sec,
                        status.st_ctim.tv_nsec);
  }
  return text;
}

bool SourceWatch::has_file(const struct stat& status) const {
  return std::ranges::any_of(files_, [&](const Seen& seen) {
    return seen.status.st_dev == status.st_dev && seen.status.st_ino == status.st_ino;
  });
}

}  // namespace trash_panda::format
