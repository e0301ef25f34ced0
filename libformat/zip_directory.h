#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trash_panda/base/error.h"

namespace trash_panda::format {

/// Bytes that are read in pieces, from a file or from memory.
struct ByteSource {
  std::uint64_t size_bytes;
  std::function<Result<void>(std::uint64_t offset_bytes, std::span<std::byte> target)> read;
};

/// The bytes at `bytes`, which outlive the source.
[[nodiscard]] ByteSource memory_source(std::span<const std::byte> bytes);

/// A file within an archive.
struct ZipEntry {
  std::string name;
  std::uint64_t data_offset_bytes;  ///< From the start of the archive.
  std::uint64_t size_bytes;         ///< As it is stored.
  bool is_stored;                   ///< Neither compressed nor encrypted.
};

/// What an archive says it holds, checked: every entry lies within it, no two overlap and no two
/// have one name.
class ZipDirectory {
 public:
  /// Reads the directory at the end of an archive and the header before each entry. Data are
  /// looked at only as far as that: their checksums are not.
  ///
  /// @retval kCorrupt      No directory at the end ("truncated"), or one that does not fit the file
  ///                       (reason "zip").
  /// @retval kUnsupported  Several volumes, or a directory of more than 100 MB.
  /// @see PKWARE APPNOTE.TXT 6.3.10, sections 4.3 and 4.4
  static Result<ZipDirectory> read(const ByteSource& source);

  /// Sorted by name.
  [[nodiscard]] const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The entry of that name; null when there is none.
  [[nodiscard]] const ZipEntry* find(std::string_view name) const;

 private:
  std::vector<ZipEntry> entries_;
};

}  // namespace trash_panda::format
