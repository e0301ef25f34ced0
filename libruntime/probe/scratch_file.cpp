#include "scratch_file.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <random>
#include <span>
#include <string>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/units.h"

namespace trash_panda::runtime {

namespace {

using ScratchClock = std::chrono::steady_clock;

constexpr std::uint64_t kScratchPieceBytes = 8 * kMiB;

Error cannot_write(int errno_value, const std::filesystem::path& folder) {
  return Error::from_errno(errno_value,
                           fmt::format("can't write a test file in {}", printable(folder)),
                           ErrorCode::kOutput);
}

/// A file without a name. Filesystems that know no O_TMPFILE get one that loses its name at once.
int open_nameless(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT && errno != EINVAL)) {
    return fd;
  }
  std::string name = (folder / ".trash-panda-probe-XXXXXX").native();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) {
    ::unlink(name.c_str());
  }
  return named;
}

/// Bytes that neither a filesystem nor a drive can compress.
void fill_randomly(std::span<std::byte> target, std::mt19937_64& generator) {
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= target.size();
       at += sizeof(std::uint64_t)) {
    const std::uint64_t word = generator();
    std::memcpy(target.data() + at, &word, sizeof(word));
  }
}

}  // namespace

ScratchFile::ScratchFile(ScratchFile&& other) noexcept {
  *this = std::move(other);
}

ScratchFile& ScratchFile::operator=(ScratchFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(folder_, other.folder_);
  return *this;
}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) {
    ::close(fd_);  // Nothing is lost: the file has no name.
  }
}

Result<ScratchFile> ScratchFile::create(const std::filesystem::path& folder, const Limits& limits) {
  ScratchFile file;
  file.folder_ = folder;
  file.fd_ = open_nameless(folder);
  if (file.fd_ < 0) {
    return std::unexpected(cannot_write(errno, folder));
  }
  TP_RETURN_IF_ERROR(file.fill(limits));
  return file;
}

Result<void> ScratchFile::fill(const Limits& limits) {
  // Where direct writes are refused, the sync below does what they would have done.
  static_cast<void>(::fcntl(fd_, F_SETFL, O_DIRECT));
  TP_ASSIGN_OR_RETURN(const AlignedBuffer piece, AlignedBuffer::create(kScratchPieceBytes));
  std::mt19937_64 generator;  // NOLINT(cert-msc51-cpp): any bytes will do, the same ones too.
  fill_randomly(piece.span(), generator);
  const auto start = ScratchClock::now();
  while (size_bytes_ + piece.size_bytes() <= limits.size_bytes) {
    if (limits.stop != nullptr && *limits.stop) {
      return std::unexpected(Error(ErrorCode::kInterrupted, "measuring was stopped"));
    }
    // Every page differs from its namesakes, so that a drive that stores equal pages once can't.
    for (std::uint64_t at = 0; at < piece.size_bytes(); at += 4 * kKiB) {
      std::memcpy(piece.data() + at, &size_bytes_, sizeof(size_bytes_));
    }
    const ssize_t written =
        ::pwrite(fd_, piece.data(), piece.size_bytes(), static_cast<off_t>(size_bytes_));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0 && errno == EINVAL) {
      const int flags = ::fcntl(fd_, F_GETFL);
      if (flags >= 0 && (flags & O_DIRECT) != 0 && ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0) {
        continue;  // It took the flag and refuses the write: some FUSE filesystems.
      }
    }
    if (written != static_cast<ssize_t>(piece.size_bytes())) {
      return std::unexpected(cannot_write(written < 0 ? errno : ENOSPC, folder_));
    }
    size_bytes_ += piece.size_bytes();
    const std::chrono::duration<double> elapsed = ScratchClock::now() - start;
    if (elapsed.count() > limits.seconds) {
      break;
    }
  }
  if (::fdatasync(fd_) != 0) {
    return std::unexpected(cannot_write(errno, folder_));
  }
  return {};
}

Result<File> ScratchFile::open(ReadMode mode) const {
  return File::open(fmt::format("/proc/self/fd/{}", fd_), mode);
}

}  // namespace trash_panda::runtime
