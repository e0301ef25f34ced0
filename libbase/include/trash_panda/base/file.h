#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "trash_panda/base/error.h"
#include "trash_panda/base/printable.h"

namespace trash_panda {

/// Whether reads go through the page cache.
enum class ReadMode {
  kBuffered,
  kDirect,  ///< O_DIRECT: memory, offset and length obey File::direct_alignment().
};

/// Whether large requests go past the page cache.
enum class DirectUse {
  kAuto,    ///< Where the filesystem allows.
  kAlways,  ///< Where it does not, an error says so.
  kNever,
};

/// What a direct read must be a multiple of. Zero where the file refuses direct reads.
struct DirectAlignment {
  std::uint32_t memory_bytes = 0;
  std::uint32_t offset_bytes = 0;
};

/// An open file for positioned reads. Thread-safe: reads share no position.
class File {
 public:
  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  /// Opens a regular file.
  ///
  /// With kDirect where the filesystem refuses O_DIRECT, the file is opened buffered instead and
  /// `mode()` says so: the caller reports it.
  ///
  /// @retval kMissing  There is no such file, or it is not a regular file.
  /// @retval kFailed   The system refused (permission, too many open files).
  static Result<File> open(const std::filesystem::path& path, ReadMode mode = ReadMode::kBuffered);

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// Size when it was opened, in bytes.
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] ReadMode mode() const { return mode_; }
  /// Asked of the file by statx(); 4096 where the kernel does not tell.
  [[nodiscard]] DirectAlignment direct_alignment() const { return alignment_; }

  /// Reads `target.size()` bytes at `offset_bytes`; loops over short reads and EINTR.
  ///
  /// @retval kCorrupt  The file ends before that; reason "truncated".
  /// @retval kFailed   The read failed, e.g. EIO.
  Result<void> read_exact_at(std::uint64_t offset_bytes, std::span<std::byte> target) const;

  /// Reads up to `target.size()` bytes; a short count only at the end of the file.
  ///
  /// With kDirect the length may reach past the end of the file, as long as it is aligned.
  Result<std::uint64_t> read_at(std::uint64_t offset_bytes, std::span<std::byte> target) const;

  /// The failures of reading, for whoever reads from fd() by other means, so that they are worded
  /// alike.
  ///
  /// @return kFailed: the system refused to read `size_bytes` at `offset_bytes`.
  [[nodiscard]] Error read_refused(int errno_value, std::uint64_t offset_bytes,
                                   std::uint64_t size_bytes) const;
  /// @return kCorrupt, reason "truncated": of `size_bytes` at `offset_bytes`, the file only has the
  ///         first `got_bytes`.
  [[nodiscard]] Error ends_early(std::uint64_t offset_bytes, std::uint64_t size_bytes,
                                 std::uint64_t got_bytes) const;

 private:
  int fd_ = -1;
  std::filesystem::path path_;
  std::uint64_t size_bytes_ = 0;
  ReadMode mode_ = ReadMode::kBuffered;
  DirectAlignment alignment_;
};

/// Name of the filesystem that holds `path` ("ext4", "tmpfs", "nfs", "9p" …), "unknown" if the
/// system doesn't tell. For messages.
std::string filesystem_name(const std::filesystem::path& path);

}  // namespace trash_panda
