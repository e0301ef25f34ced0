#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "trash_panda/base/error.h"
#include "trash_panda/base/file.h"

namespace trash_panda::format {

/// Room that BulkReader::read() needs in its buffer beside the bytes asked for: one alignment
/// before and one behind.
inline constexpr std::uint64_t kBulkReadSlackBytes = 8192;

/// Reads large pieces of a file past the page cache where the filesystem allows, so that neither a
/// pack nor its source pushes everything else out of memory. Thread-safe.
class BulkReader {
 public:
  /// @retval kMissing, kFailed  As File::open().
  static Result<BulkReader> open(const std::filesystem::path& path);

  /// Reads [offset_bytes, offset_bytes + size_bytes).
  ///
  /// @param buffer  Page-aligned, at least size_bytes + kBulkReadSlackBytes.
  /// @return Where in `buffer` the bytes lie.
  /// @retval kCorrupt  The file ends before that.
  Result<std::span<const std::byte>> read(std::uint64_t offset_bytes, std::uint64_t size_bytes,
                                          std::span<std::byte> buffer) const;

  /// Direct as long as reads can be.
  [[nodiscard]] ReadMode mode() const { return file_.mode(); }

 private:
  explicit BulkReader(File file) : file_(std::move(file)) {}

  File file_;
};

}  // namespace trash_panda::format
