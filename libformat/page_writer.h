#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/base/error.h"
#include "trash_panda/base/file_system.h"

namespace trash_panda::format {

/// Writes a run of bytes that come in pieces of any size in large aligned requests, so that they
/// can go past the page cache.
class PageWriter {
 public:
  /// @param offset_bytes  Where the run begins in `file`, which outlives this; whole pages.
  static Result<PageWriter> create(WritableFile& file, std::uint64_t offset_bytes);

  Result<void> append(std::span<const std::byte> bytes);
  Result<void> append_zeros(std::uint64_t size_bytes);
  /// Writes what is held back.
  Result<void> flush();

 private:
  PageWriter(WritableFile& file, std::uint64_t offset_bytes, AlignedBuffer buffer)
      : file_(&file), offset_bytes_(offset_bytes), buffer_(std::move(buffer)) {}

  Result<void> write(std::span<const std::byte> bytes);

  WritableFile* file_;
  std::uint64_t offset_bytes_;
  AlignedBuffer buffer_;
  std::size_t held_bytes_ = 0;
};

}  // namespace trash_panda::format
