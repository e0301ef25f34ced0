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
  /// @retval kUnsupported  The filesystem refuses O_DIRECT, and DirectUse::kAlways asks for it.
  static Result<BulkReader> open(const std::filesystem::path& path,
                                 DirectUse direct = DirectUse::kAuto);

  /// Reads [offset_bytes, offset_bytes + size_bytes).
  ///
  /// @param buffer  Page-aligned, at least size_bytes + kBulkReadSlackBytes.
  /// @return Where in `buffer` the bytes lie.
  /// @retval kCorrupt      The file ends before that.
  /// @retval kUnsupported  As open().
  Result<std::span<const std::byte>> read(std::uint64_t offset_bytes, std::uint64_t size_bytes,
                                          std::span<std::byte> buffer) const;

  /// Direct as long as reads can be.
  [[nodiscard]] ReadMode mode() const { return file_.mode(); }

 private:
  BulkReader(File file, DirectUse direct) : file_(std::move(file)), direct_(direct) {}

  File file_;
  DirectUse direct_;
};

}  // namespace trash_panda::format
