#pragma once

#include <cstdint>
#include <filesystem>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"
#include "trash_panda/base/progress.h"

namespace trash_panda::runtime {

/// A file of random bytes to read back, in a folder but without a name there: it disappears with
/// this object, and with the process however that ends.
class ScratchFile {
 public:
  /// When writing it ends, whichever comes first. Whole pieces are written.
  struct Limits {
    std::uint64_t size_bytes = 0;
    double seconds = 0;
    StopFlag stop = nullptr;
  };

  ScratchFile() = default;
  ScratchFile(ScratchFile&& other) noexcept;
  ScratchFile& operator=(ScratchFile&& other) noexcept;
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  ~ScratchFile();

  /// Writes it past the page cache where the filesystem lets us, and makes it durable, so that
  /// reading it asks the drive.
  ///
  /// @retval kOutput       The folder can't be written, or is full.
  /// @retval kInterrupted  Limits::stop was set.
  static Result<ScratchFile> create(const std::filesystem::path& folder, const Limits& limits);

  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  /// Opens it for reading; valid as long as this object.
  [[nodiscard]] Result<File> open(ReadMode mode) const;

 private:
  Result<void> fill(const Limits& limits);

  int fd_ = -1;
  std::uint64_t size_bytes_ = 0;
  std::filesystem::path folder_;
};

}  // namespace trash_panda::runtime
