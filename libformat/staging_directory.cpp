#include "staging_directory.h"

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/linked_shard.h"
#include "trash_panda/format/pack_writer.h"

namespace trash_panda::format {

namespace {

/// "model.panda/" names the same folder as "model.panda".
std::filesystem::path without_trailing_slash(const std::filesystem::path& path) {
  std::filesystem::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

}  // namespace

std::filesystem::path partial_pack_path(const std::filesystem::path& target) {
  std::filesystem::path path = without_trailing_slash(target);
  path += ".partial";
  return path;
}

StagingDirectory::StagingDirectory(FileSystem& file_system, std::filesystem::path target)
    : file_system_(&file_system), target_(std::move(target)) {
  parent_ = target_.has_parent_path() ? target_.parent_path() : std::filesystem::path(".");
  staging_ = partial_pack_path(target_);
}

Result<StagingDirectory> StagingDirectory::create(FileSystem& file_system,
                                                  const std::filesystem::path& target,
                                                  const SourceWatch& source, OwnName is_own,
                                                  const Logger& log) {
  StagingDirectory staging(file_system, without_trailing_slash(target));
  if (!staging.target_.has_filename() || staging.target_.filename() == "." ||
      staging.target_.filename() == "..") {
    return std::unexpected(Error(
        ErrorCode::kUsage, fmt::format("\"{}\" can't be the name of a pack", printable(target))));
  }
  if (file_system.exists(staging.target_)) {
    return std::unexpected(
        Error(ErrorCode::kOutput, fmt::format("{} exists already", printable(staging.target_)))
            .with_hint("remove it or choose another output"));
  }
  if (!file_system.exists(staging.parent_)) {
    return std::unexpected(
        Error(ErrorCode::kOutput,
              fmt::format("the folder {} for {} does not exist", printable(staging.parent_),
                          printable(staging.target_.filename())))
            .with_hint("create it first"));
  }
  TP_RETURN_IF_ERROR(staging.make_directory(source, is_own, log));
  return staging;
}

Result<void> StagingDirectory::make_directory(const SourceWatch& source, OwnName is_own,
                                              const Logger& log) {
  const bool is_left_over = file_system_->exists(staging_);
  if (is_left_over) {
    TP_RETURN_IF_ERROR(check_left_over_folder(staging_));
  } else {
    TP_RETURN_IF_ERROR(file_system_->create_directory(staging_));
  }
  Result<void> made = lock(log);
  if (made) {
    made = is_left_over ? take_over(source, is_own) : mark();
  }
  if (!made && !is_left_over && made.error().code() != ErrorCode::kLocked) {
    discard(log);
  }
  return made;
}

Result<void> StagingDirectory::lock(const Logger& log) {
  Result<std::unique_ptr<DirectoryLock>> lock = file_system_->lock_directory(staging_);
  if (lock) {
    lock_ = *std::move(lock);
    return {};
  }
  if (lock.error().code() == ErrorCode::kUnsupported) {
    log(LogLevel::kWarning,
        fmt::format("{}: make sure that nothing else writes there", lock.error().message()));
    return {};
  }
  return std::unexpected(std::move(lock).error());
}

Result<void> StagingDirectory::mark() {
  TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> mark,
                      file_system_->create_file(staging_ / kStagingMarkName, WriteMode::kBuffered));
  TP_RETURN_IF_ERROR(mark->close());
  // Durable before anything else is: what a power cut leaves must be there, and known as ours.
  TP_RETURN_IF_ERROR(file_system_->sync_directory(staging_));
  return file_system_->sync_directory(parent_);
}

Result<void> StagingDirectory::take_over(const SourceWatch& source, OwnName is_own) {
  TP_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> entries,
                      file_system_->list_directory(staging_));
  TP_RETURN_IF_ERROR(check_left_over_entries(staging_, entries, source, is_own));
  is_left_over_ = entries.size() > 1;
  return entries.empty() ? mark() : Result<void>();
}

Result<void> StagingDirectory::clear(const Logger& log) {
  // Emptied rather than replaced: the lock is on the folder, and must go on meaning something.
  TP_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> entries,
                      file_system_->list_directory(staging_));
  for (const std::filesystem::path& entry : entries) {
    if (entry.filename() != kStagingMarkName) {
      TP_RETURN_IF_ERROR(remove_pack_file(*file_system_, entry, log));
    }
  }
  return {};
}

std::filesystem::path StagingDirectory::journal_path() const {
  return staging_ / kStagingMarkName;
}

Result<void> StagingDirectory::commit() {
  TP_RETURN_IF_ERROR(file_system_->rename(staging_, target_));
  Result<void> done = file_system_->sync_directory(parent_);
  if (done) {
    // Only now: a power cut before would leave a folder that no later run takes for its own. One
    // that comes here leaves a whole pack with its journal in it: readers ignore that, and it goes
    // when the pack is replaced.
    done = file_system_->remove_all(target_ / kStagingMarkName);
  }
  if (done) {
    lock_.reset();
    return {};
  }
  // The pack is whole, but a crash could still take its name away: reported as not written, so it
  // must not look as if it were.
  if (!file_system_->rename(target_, staging_)) {
    return std::unexpected(
        std::move(done).error().with_context(fmt::format("{} was written", printable(target_))));
  }
  return done;
}

Result<void> StagingDirectory::remove(const Logger& log) {
  TP_RETURN_IF_ERROR(clear(log));
  return file_system_->remove_all(staging_);
}

void StagingDirectory::discard(const Logger& log) {
  if (Result<void> removed = remove(log); !removed) {
    log(LogLevel::kWarning, removed.error().to_string());
  }
  lock_.reset();
}

}  // namespace trash_panda::format
