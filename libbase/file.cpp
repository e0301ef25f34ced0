#include "trash_panda/base/file.h"

#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

namespace trash_panda {

namespace {

/// Alignment that every common drive and filesystem accepts, where statx() says nothing (kernels
/// before 6.1, filesystems that don't fill it in).
constexpr DirectAlignment kCautiousAlignment{.memory_bytes = 4096, .offset_bytes = 4096};

DirectAlignment query_alignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx status = {};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0 && status.stx_dio_mem_align != 0) {
    return {.memory_bytes = status.stx_dio_mem_align, .offset_bytes = status.stx_dio_offset_align};
  }
#else
  static_cast<void>(fd);
#endif
  return kCautiousAlignment;
}

int open_for_reading(const std::filesystem::path& path, int flags) {
  int fd = -1;
  do {
    // O_NONBLOCK: opening a FIFO by mistake must not hang.
    fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);
  } while (fd < 0 && errno == EINTR);  // As network filesystems may end it.
  return fd;
}

}  // namespace

Result<File> File::open(const std::filesystem::path& path, ReadMode mode) {
  File file;
  file.path_ = path;
  if (mode == ReadMode::kDirect) {
    file.fd_ = open_for_reading(path, O_DIRECT);
    file.mode_ = ReadMode::kDirect;
  }
  if (file.fd_ < 0) {
    file.fd_ = open_for_reading(path, 0);
    file.mode_ = ReadMode::kBuffered;
  }
  if (file.fd_ < 0) {
    return std::unexpected(Error::from_errno(errno, fmt::format("can't open {}", printable(path))));
  }
  struct stat status = {};
  if (::fstat(file.fd_, &status) != 0) {
    return std::unexpected(Error::from_errno(errno, fmt::format("can't stat {}", printable(path))));
  }
  if (!S_ISREG(status.st_mode)) {
    return std::unexpected(
        Error(ErrorCode::kMissing, fmt::format("{} is not a regular file", printable(path))));
  }
  // It means nothing for a regular file, except that io_uring would not wait.
  if (::fcntl(file.fd_, F_SETFL, file.mode_ == ReadMode::kDirect ? O_DIRECT : 0) != 0) {
    return std::unexpected(Error::from_errno(errno, fmt::format("can't open {}", printable(path))));
  }
  file.size_bytes_ = static_cast<std::uint64_t>(status.st_size);
  if (file.mode_ == ReadMode::kDirect) {
    file.alignment_ = query_alignment(file.fd_);
  }
  return file;
}

File::File(File&& other) noexcept {
  *this = std::move(other);
}

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(mode_, other.mode_);
  std::swap(alignment_, other.alignment_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) {
    ::close(fd_);  // Opened for reading: a failing close loses nothing.
  }
}

Result<std::uint64_t> File::read_at(std::uint64_t offset_bytes, std::span<std::byte> target) const {
  std::size_t done_bytes = 0;
  while (done_bytes < target.size()) {
    const std::span<std::byte> rest = target.subspan(done_bytes);
    const ssize_t got =
        ::pread(fd_, rest.data(), rest.size(), static_cast<off_t>(offset_bytes + done_bytes));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return std::unexpected(read_refused(errno, offset_bytes + done_bytes, rest.size()));
    }
    if (got == 0) {
      break;
    }
    done_bytes += static_cast<std::size_t>(got);
    // A direct read that came back with a broken length was cut by the end of the file; a retry
    // would not be aligned.
    if (mode_ == ReadMode::kDirect && done_bytes % alignment_.offset_bytes != 0) {
      break;
    }
  }
  return done_bytes;
}

Result<void> File::read_exact_at(std::uint64_t offset_bytes, std::span<std::byte> target) const {
  TP_ASSIGN_OR_RETURN(const std::uint64_t got_bytes, read_at(offset_bytes, target));
  if (got_bytes != target.size()) {
    return std::unexpected(ends_early(offset_bytes, target.size(), got_bytes));
  }
  return {};
}

Error File::read_refused(int errno_value, std::uint64_t offset_bytes,
                         std::uint64_t size_bytes) const {
  return Error::from_errno(errno_value, fmt::format("reading {} bytes at {} of {} failed",
                                                    size_bytes, offset_bytes, printable(path_)));
}

Error File::ends_early(std::uint64_t offset_bytes, std::uint64_t size_bytes,
                       std::uint64_t got_bytes) const {
  return Error(ErrorCode::kCorrupt,
               fmt::format("{} ends at {} bytes, but {} bytes at {} are needed", printable(path_),
                           offset_bytes + got_bytes, size_bytes, offset_bytes))
      .with_reason("truncated");
}

std::string filesystem_name(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    return "unknown";
  }
  const std::string device = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  std::string line;
  std::string name = "unknown";
  while (std::getline(mounts, line)) {
    // 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw   (proc(5))
    std::istringstream fields(line);
    std::string id;
    std::string parent;
    std::string found_device;
    fields >> id >> parent >> found_device;
    const std::size_t separator = line.find(" - ");
    if (found_device == device && separator != std::string::npos) {
      name = line.substr(separator + 3, line.find(' ', separator + 3) - separator - 3);
    }
  }
  return name;
}

}  // namespace trash_panda
