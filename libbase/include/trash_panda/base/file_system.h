#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda {

/// Whether writes go through the page cache.
enum class WriteMode {
  kBuffered,
  kDirect,  ///< O_DIRECT as long as the filesystem and the requests allow; silently buffered else.
  kDirectOnly,  ///< The same, but an error where the filesystem refuses it.
};

/// A file being written. Nothing is durable before sync() has returned success.
///
/// Destroying one closes it and drops what was not synced: no destructor writes or hides an error.
class WritableFile {
 public:
  WritableFile() = default;
  WritableFile(const WritableFile&) = delete;
  WritableFile& operator=(const WritableFile&) = delete;
  virtual ~WritableFile() = default;

  /// Writes all of `bytes` at `offset_bytes`, which may be past the end; loops over short writes
  /// and EINTR. With kDirect, requests whose memory, place and size are whole pages go past the
  /// page cache; the first that is not, or is refused, turns the file to buffered writes.
  /// @retval kOutput  No space, read-only, quota; with kDirectOnly, O_DIRECT is refused.
  virtual Result<void> write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) = 0;
  /// Makes what was written durable (fdatasync).
  virtual Result<void> sync() = 0;
  /// Closes the file and reports the error that the system kept for that moment.
  virtual Result<void> close() = 0;
};

/// A lock on a folder, held until it is destroyed or the process ends.
class DirectoryLock {
 public:
  DirectoryLock() = default;
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;
  virtual ~DirectoryLock() = default;
};

/// What writing a pack needs from the operating system, behind one interface, so that a test can
/// drop what was not synced or fail any call.
///
/// Thread-safe in the POSIX implementation.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  /// The machine's own.
  static FileSystem& posix();

  /// Creates a new file.
  /// @retval kOutput  It exists, or can't be created; with kDirectOnly, O_DIRECT is refused.
  virtual Result<std::unique_ptr<WritableFile>> create_file(const std::filesystem::path& path,
                                                            WriteMode mode) = 0;
  /// Opens a file that exists, to write on behind its first `kept_bytes`; the rest is cut off.
  /// @retval kOutput  It doesn't exist, is no regular file, or can't be written.
  virtual Result<std::unique_ptr<WritableFile>> open_file(const std::filesystem::path& path,
                                                          std::uint64_t kept_bytes,
                                                          WriteMode mode) = 0;
  virtual Result<void> create_directory(const std::filesystem::path& path) = 0;
  /// Gives a file, or a symbolic link itself, a second name, on the same filesystem.
  /// @retval kOutput  The new name exists, or the filesystem has no such links.
  virtual Result<void> link(const std::filesystem::path& file,
                            const std::filesystem::path& name) = 0;
  /// Makes `name` a symbolic link to `file`, which need not exist. @retval kOutput  `name` does.
  virtual Result<void> link_symbolically(const std::filesystem::path& file,
                                         const std::filesystem::path& name) = 0;
  /// Replaces nothing: the target must not exist. @retval kOutput  It does.
  virtual Result<void> rename(const std::filesystem::path& from,
                              const std::filesystem::path& to) = 0;
  /// Locks an existing folder against other processes that lock it too; never waits.
  /// @retval kOutput       `path` is no folder (a symbolic link to one isn't), or can't be opened.
  /// @retval kLocked       Another process holds it, or it was replaced in this moment.
  /// @retval kUnsupported  The filesystem has no locks.
  virtual Result<std::unique_ptr<DirectoryLock>> lock_directory(
      const std::filesystem::path& path) = 0;
  /// Paths of all that is in a folder, in no order.
  virtual Result<std::vector<std::filesystem::path>> list_directory(
      const std::filesystem::path& path) = 0;
  /// Makes creations, renames and removals in `directory` durable.
  virtual Result<void> sync_directory(const std::filesystem::path& directory) = 0;
  /// Removes a file or a folder with all that is in it; one that is not there is no error.
  virtual Result<void> remove_all(const std::filesystem::path& path) = 0;
  [[nodiscard]] virtual bool exists(const std::filesystem::path& path) = 0;
  /// Bytes that this user may still write on the filesystem of `path`, which exists.
  virtual Result<std::uint64_t> free_bytes(const std::filesystem::path& path) = 0;
};

}  // namespace trash_panda
