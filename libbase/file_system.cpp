#include "trash_panda/base/file_system.h"

#include <cerrno>
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

/// Bytes after which the kernel is asked to begin writing, so that sync() finds little left to do
/// and an interrupted run ends soon.
constexpr std::uint64_t kWriteBehindBytes = 8'388'608;

Error write_error(int errno_value, std::string_view what, const std::filesystem::path& path) {
  // Whatever the system says: here it is the output that is in the way, never an input.
  return Error::from_errno(errno_value, fmt::format("can't {} {}", what, printable(path)))
      .with_code(ErrorCode::kOutput);
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

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) {
      ::close(fd_);
    }
  }

  Result<void> append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) {
        continue;
      }
      if (written < 0) {
        return std::unexpected(write_error(errno, "write", path_));
      }
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      written_bytes_ += static_cast<std::uint64_t>(written);
    }
    begin_writeback();
    return {};
  }

  Result<void> sync() override {
    if (::fdatasync(fd_) != 0) {
      return std::unexpected(write_error(errno, "sync", path_));
    }
    return {};
  }

  Result<void> close() override {
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) {
      return std::unexpected(write_error(errno, "close", path_));
    }
    return {};
  }

 private:
  void begin_writeback() {
    if (written_bytes_ - handed_over_bytes_ >= kWriteBehindBytes) {
      // A hint: where it is refused, sync() does it all, and only sync() reports errors.
      static_cast<void>(::sync_file_range(fd_, static_cast<off_t>(handed_over_bytes_),
                                          static_cast<off_t>(written_bytes_ - handed_over_bytes_),
                                          SYNC_FILE_RANGE_WRITE));
      handed_over_bytes_ = written_bytes_;
    }
  }

  int fd_;
  std::filesystem::path path_;
  std::uint64_t written_bytes_ = 0;
  std::uint64_t handed_over_bytes_ = 0;
};

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create_file(const std::filesystem::path& path) override {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
      return std::unexpected(write_error(errno, "create", path));
    }
    return std::make_unique<PosixWritableFile>(fd, path);
  }

  Result<void> create_directory(const std::filesystem::path& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) {
      return std::unexpected(write_error(errno, "create the folder", path));
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
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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
    const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
      return std::unexpected(write_error(errno, "open the folder", directory));
    }
    const int status = ::fsync(fd);
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
