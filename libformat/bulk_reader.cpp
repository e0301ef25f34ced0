#include "bulk_reader.h"

#include <cerrno>

#include <fmt/format.h>

namespace trash_panda::format {

namespace {

/// What the buffers handed to read() are aligned to, and half of kBulkReadSlackBytes.
constexpr std::uint64_t kAlignmentBytesMax = 4096;

Result<std::span<const std::byte>> read_buffered(const File& file, std::uint64_t offset_bytes,
                                                 std::span<std::byte> target) {
  TP_RETURN_IF_ERROR(file.read_exact_at(offset_bytes, target));
  return target;
}

Error direct_refused(const std::filesystem::path& path) {
  return Error(ErrorCode::kUnsupported,
               fmt::format("{} can't be read past the page cache: its filesystem ({}) refuses "
                           "O_DIRECT",
                           printable(path), filesystem_name(path)));
}

}  // namespace

Result<BulkReader> BulkReader::open(const std::filesystem::path& path, DirectUse direct) {
  const ReadMode wanted = direct == DirectUse::kNever ? ReadMode::kBuffered : ReadMode::kDirect;
  TP_ASSIGN_OR_RETURN(File file, File::open(path, wanted));
  const DirectAlignment alignment = file.direct_alignment();
  if (file.mode() == ReadMode::kDirect &&
      (alignment.offset_bytes == 0 || alignment.offset_bytes > kAlignmentBytesMax ||
       alignment.memory_bytes > kAlignmentBytesMax)) {
    TP_ASSIGN_OR_RETURN(file, File::open(path, ReadMode::kBuffered));
  }
  if (direct == DirectUse::kAlways && file.mode() != ReadMode::kDirect) {
    return std::unexpected(direct_refused(path));
  }
  return BulkReader(std::move(file), direct);
}

Result<std::span<const std::byte>> BulkReader::read(std::uint64_t offset_bytes,
                                                    std::uint64_t size_bytes,
                                                    std::span<std::byte> buffer) const {
  TP_ASSERT(buffer.size() >= size_bytes + kBulkReadSlackBytes);
  if (file_.mode() == ReadMode::kBuffered) {
    return read_buffered(file_, offset_bytes, buffer.first(size_bytes));
  }
  const std::uint64_t alignment_bytes = file_.direct_alignment().offset_bytes;
  const std::uint64_t lead_bytes = offset_bytes % alignment_bytes;
  const std::uint64_t span_bytes =
      (lead_bytes + size_bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  const Result<std::uint64_t> got_bytes =
      file_.read_at(offset_bytes - lead_bytes, buffer.first(span_bytes));
  if (!got_bytes && got_bytes.error().errno_value() == EINVAL) {
    // Some filesystems grant O_DIRECT when opening and refuse it when reading.
    if (direct_ == DirectUse::kAlways) {
      return std::unexpected(direct_refused(file_.path()));
    }
    TP_ASSIGN_OR_RETURN(const File buffered, File::open(file_.path(), ReadMode::kBuffered));
    return read_buffered(buffered, offset_bytes, buffer.first(size_bytes));
  }
  if (!got_bytes) {
    return std::unexpected(got_bytes.error());
  }
  if (*got_bytes < lead_bytes + size_bytes) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt,
              fmt::format("{} ends at {} bytes, but {} bytes at {} are needed",
                          printable(file_.path()), offset_bytes - lead_bytes + *got_bytes,
                          size_bytes, offset_bytes))
            .with_reason("truncated"));
  }
  return buffer.subspan(lead_bytes, size_bytes);
}

}  // namespace trash_panda::format
