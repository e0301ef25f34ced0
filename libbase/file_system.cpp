#include "trash_panda/base/file_system.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"

namespace trash_panda {

namespace {

/// Buffered bytes after which the kernel is asked to begin writing, so that sync() finds little
/// left to do and an interrupted run ends soon.
constexpr std::uint64_t kWriteBehindBytes = 8'388'608;

Error write_error(int errno_value, std::string_view what, const std::filesystem::path& path) {
  // Whatever the system says: here it is the output that is in the way, never an input.
  return Error::from_errno(errno_value, fmt::format("can't {} {}", what, printable(path)))
      .with_code(ErrorCode::kOutput);
}

Error direct_refused(const std::filesystem::path& path) {
  return Error(ErrorCode::kOutput,
               fmt::format("{} can't be written past the page cache: its filesystem ({}) refuses "
                           "O_DIRECT",
                           printable(path), filesystem_name(path.parent_path())));
}

/// A descriptor of a folder; flock() on it is released with it.
class PosixDirectoryLock final : public DirectoryLock {
 public:
  explicit PosixDirectoryLock(int fd) : fd_(fd) {}
  ~PosixDirectoryLock() override { ::close(fd_); }

  Result<void> acquire(const std::filesystem::path& path) {
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) {
        return std::unexpected(locked(path));
      }
      return std::unexpected(
          write_error(errno, "lock the folder", path).with_code(ErrorCode::kUnsupported));
    }
    struct stat held = {};
    struct stat named = {};
    if (::fstat(fd_, &held) != 0 || ::lstat(path.c_str(), &named) != 0 ||
        held.st_dev != named.st_dev || held.st_ino != named.st_ino) {
      // Its owner renamed, removed or replaced it after we had opened it.
      return std::unexpected(locked(path));
    }
    return {};
  }

 private:
  static Error locked(const std::filesystem::path& path) {
    return Error(ErrorCode::kLocked,
                 fmt::format("{} is in use by another process", printable(path)))
        .with_hint("wait for it, or choose another output");
  }

  int fd_;
};

/// What memory, place and size of a direct write have to be multiples of: enough for every drive
/// and filesystem that allows them at all.
constexpr std::uint64_t kDirectWriteAlignment = 4096;

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::filesystem::path path, bool is_direct, WriteMode mode)
      : fd_(fd), path_(std::move(path)), is_direct_(is_direct), mode_(mode) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  Result<void> write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      // Also what a short direct write leaves.
      if (is_direct_ && !is_whole_pages(offset_bytes, bytes)) {
        TP_RETURN_IF_ERROR(leave_direct_mode());
      }
      const ssize_t written =
          ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0 && errno == EINVAL && is_direct_) {
        // Some filesystems grant O_DIRECT when opening and refuse it when writing.
        if (mode_ == WriteMode::kDirectOnly) {
          return std::unexpected(direct_refused(path_));
        }
        TP_RETURN_IF_ERROR(leave_direct_mode());
        continue;
      }
      if (written <= 0) {
        return std::unexpected(write_error(written == 0 ? ENOSPC : errno, "write", path_));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset_bytes += static_cast<std::uint64_t>(written);
      begin_writeback(offset_bytes, static_cast<std::uint64_t>(written));
    }
    return {};
  }

  Result<void> sync() override {
    while (::fdatasync(fd_) != 0) {
      if (errno != EINTR) {
        return std::unexpected(write_error(errno, "sync", path_));
      }
    }
    return {};
  }

  Result<void> cut(std::uint64_t kept_bytes) {
    while (::ftruncate(fd_, static_cast<off_t>(kept_bytes)) != 0) {
      if (errno != EINTR) {
        return std::unexpected(write_error(errno, "shorten", path_));
      }
    }
    return {};
  }

  Result<void> close() override {
    const int fd = std::exchange(fd_, -1);
    // After EINTR the descriptor is gone all the same (Linux), and what counts was synced.
    if (::close(fd) != 0 && errno != EINTR) {
      return std::unexpected(write_error(errno, "close", path_));
    }
    return {};
  }

 private:
  static bool is_whole_pages(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
    return (offset_bytes | bytes.size() | reinterpret_cast<std::uintptr_t>(bytes.data())) %
               kDirectWriteAlignment ==
           0;
  }

  Result<void> leave_direct_mode() {
    const int flags = ::fcntl(fd_, F_GETFL);
    if (flags < 0 || ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) {
      return std::unexpected(write_error(errno, "end direct writes to", path_));
    }
    is_direct_ = false;
    return {};
  }

  void begin_writeback(std::uint64_t end_bytes, std::uint64_t written_bytes) {
    if (is_direct_) {
      return;
    }
    cached_bytes_ += written_bytes;
    if (cached_bytes_ >= kWriteBehindBytes) {
      // A hint: where it is refused, sync() does it all, and only sync() reports errors.
      static_cast<void>(
          ::sync_file_range(fd_, static_cast<off_t>(end_bytes - std::min(cached_bytes_, end_bytes)),
                            static_cast<off_t>(cached_bytes_), SYNC_FILE_RANGE_WRITE));
      cached_bytes_ = 0;
    }
  }

  int fd_;
  std::filesystem::path path_;
  bool is_direct_;
  WriteMode mode_;
  std::uint64_t cached_bytes_ = 0;  ///< Not handed to the drive yet.
};

/// Opens a file to write, with O_DIRECT where that is asked for and granted.
Result<std::unique_ptr<PosixWritableFile>> open_to_write(const std::filesystem::path& path,
                                                         int flags, WriteMode mode,
                                                         std::string_view what) {
  bool is_direct = mode != WriteMode::kBuffered;
  int fd = -1;
  do {
    fd = ::open(path.c_str(), flags | O_WRONLY | O_CLOEXEC | (is_direct ? O_DIRECT : 0), 0666);
    if (fd < 0 && errno == EINVAL && is_direct) {
      if (mode == WriteMode::kDirectOnly) {
        return std::unexpected(direct_refused(path));
      }
      // Refused, but with O_CREAT some filesystems have made the file by then.
      is_direct = false;
      flags = (flags & ~O_EXCL) | O_NOFOLLOW;
      errno = EINTR;
    }
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    return std::unexpected(write_error(errno, what, path));
  }
  return std::make_unique<PosixWritableFile>(fd, path, is_direct, mode);
}

int open_folder(const std::filesystem::path& path, int flags) {
  int fd = -1;
  do {
    fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create_file(const std::filesystem::path& path,
                                                    WriteMode mode) override {
    return open_to_write(path, O_CREAT | O_EXCL, mode, "create");
  }

  Result<std::unique_ptr<WritableFile>> open_file(const std::filesystem::path& path,
                                                  std::uint64_t kept_bytes,
                                                  WriteMode mode) override {
    // Not through a symbolic link, nor a FIFO: what is cut is a file that was made here.
    TP_ASSIGN_OR_RETURN(std::unique_ptr<PosixWritableFile> file,
                        open_to_write(path, O_NOFOLLOW | O_NONBLOCK, mode, "open"));
    TP_RETURN_IF_ERROR(file->cut(kept_bytes));
    return file;
  }

  Result<void> create_directory(const std::filesystem::path& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) {
      return std::unexpected(write_error(errno, "create the folder", path));
    }
    return {};
  }

  Result<void> link(const std::filesystem::path& file, const std::filesystem::path& name) override {
    if (::link(file.c_str(), name.c_str()) != 0) {
      return std::unexpected(write_error(errno, fmt::format("link {} as", printable(file)), name));
    }
    return {};
  }

  Result<void> link_symbolically(const std::filesystem::path& file,
                                 const std::filesystem::path& name) override {
    if (::symlink(file.c_str(), name.c_str()) != 0) {
      return std::unexpected(
          write_error(errno, fmt::format("make a link to {} as", printable(file)), name));
    }
    return {};
  }

  Result<void> rename(const std::filesystem::path& from, const std::filesystem::path& to) override {
    int status = ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE);
    if (status != 0 && (errno == EINVAL || errno == ENOSYS)) {
      // Filesystems without RENAME_NOREPLACE: rename() itself refuses a folder that is not empty.
      status = ::rename(from.c_str(), to.c_str());
    }
    if (status != 0) {
      return std::unexpected(write_error(errno, fmt::format("rename {} to", printable(from)), to));
    }
    return {};
  }

  Result<std::unique_ptr<DirectoryLock>> lock_directory(
      const std::filesystem::path& path) override {
    // Not through a symbolic link: what is emptied and renamed under the lock is the folder itself.
    const int fd = open_folder(path, O_NOFOLLOW);
    if (fd < 0) {
      return std::unexpected(write_error(errno, "open the folder", path));
    }
    auto lock = std::make_unique<PosixDirectoryLock>(fd);
    TP_RETURN_IF_ERROR(lock->acquire(path));
    return lock;
  }

  Result<std::vector<std::filesystem::path>> list_directory(
      const std::filesystem::path& path) override {
    std::vector<std::filesystem::path> paths;
    std::error_code error;
    std::filesystem::directory_iterator entry(path, error);
    while (!error && entry != std::filesystem::directory_iterator()) {
      paths.push_back(entry->path());
      entry.increment(error);
    }
    if (error) {
      return std::unexpected(write_error(error.value(), "list the folder", path));
    }
    return paths;
  }

  Result<void> sync_directory(const std::filesystem::path& directory) override {
    const int fd = open_folder(directory, 0);
    if (fd < 0) {
      return std::unexpected(write_error(errno, "open the folder", directory));
    }
    int status = 0;
    do {
      status = ::fsync(fd);
    } while (status != 0 && errno == EINTR);
    const int error = errno;
    ::close(fd);
    if (status != 0) {
      return std::unexpected(write_error(error, "sync the folder", directory));
    }
    return {};
  }

  Result<void> remove_all(const std::filesystem::path& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) {
      return std::unexpected(write_error(error.value(), "remove", path));
    }
    return {};
  }

  bool exists(const std::filesystem::path& path) override {
    struct stat status = {};
    return ::lstat(path.c_str(), &status) == 0;
  }

  Result<std::uint64_t> free_bytes(const std::filesystem::path& path) override {
    struct statvfs status = {};
    if (::statvfs(path.c_str(), &status) != 0) {
      return std::unexpected(write_error(errno, "ask for the free space of", path));
    }
    return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  }
};

}  // namespace

FileSystem& FileSystem::posix() {
  static PosixFileSystem file_system;
  return file_system;
}

}  // namespace trash_panda
