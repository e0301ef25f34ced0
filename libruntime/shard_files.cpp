#include "shard_files.h"

#include <cerrno>
#include <map>
#include <set>
#include <sys/stat.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/aligned_buffer.h"
#include "trash_panda/format/checksum.h"

namespace trash_panda::runtime {

namespace {

/// What AlignedBuffer gives; slots and their parts start on multiples of it.
constexpr std::uint32_t kMemoryAlignmentBytes = 4096;

bool suits_direct_reads(const File& file, std::uint64_t page_bytes) {
  const DirectAlignment alignment = file.direct_alignment();
  return file.mode() == ReadMode::kDirect && alignment.memory_bytes != 0 &&
         alignment.offset_bytes != 0 && kMemoryAlignmentBytes % alignment.memory_bytes == 0 &&
         page_bytes % alignment.offset_bytes == 0;
}

Result<void> check_header(const File& file, const format::PackedShard& shard) {
  TP_ASSIGN_OR_RETURN(const AlignedBuffer buffer, AlignedBuffer::create(shard.header_bytes));
  const std::span<std::byte> header = buffer.span().first(shard.header_bytes);
  TP_RETURN_IF_ERROR(file.read_exact_at(0, header));
  if (format::checksum_hex(header) != shard.header_checksum) {
    return std::unexpected(
        Error(ErrorCode::kMismatch,
              fmt::format("the header of {} differs from its checksum", printable(file.path())))
            .with_hint("copy or repack it again"));
  }
  return {};
}

/// Opens one shard in the best mode that works, which reading its header shows.
Result<File> open_shard(const std::filesystem::path& path, const format::PackedShard& shard,
                        std::uint64_t page_bytes) {
  {
    TP_ASSIGN_OR_RETURN(File file, File::open(path, ReadMode::kDirect));
    if (suits_direct_reads(file, page_bytes)) {
      const Result<void> checked = check_header(file, shard);
      if (checked) {
        return file;
      }
      // Some filesystems open with O_DIRECT and refuse the read itself.
      if (checked.error().errno_value() != EINVAL) {
        return std::unexpected(checked.error());
      }
    }
  }
  TP_ASSIGN_OR_RETURN(File file, File::open(path, ReadMode::kBuffered));
  TP_RETURN_IF_ERROR(check_header(file, shard));
  return file;
}

}  // namespace

Result<ShardFiles> ShardFiles::open(const std::filesystem::path& pack,
                                    const format::Manifest& manifest, const Logger& log) {
  ShardFiles shards;
  std::set<std::string> direct;
  std::set<std::string> buffered;
  std::map<dev_t, std::size_t> drives;
  for (const format::PackedShard& shard : manifest.shards) {
    const std::filesystem::path path = pack / shard.name;
    TP_ASSIGN_OR_RETURN(File file, open_shard(path, shard, manifest.page_bytes));
    const std::string filesystem = filesystem_name(path);
    if (file.mode() == ReadMode::kDirect) {
      direct.insert(fmt::format("direct ({})", filesystem));
    } else if (buffered.insert(fmt::format("buffered ({})", filesystem)).second) {
      log(LogLevel::kWarning,
          fmt::format("{} does not take direct reads ({}): reading through the page cache, which "
                      "costs memory and time; a pack on a local drive is read directly",
                      filesystem, printable(path)));
    }
    struct stat status = {};
    if (::fstat(file.fd(), &status) != 0) {
      return std::unexpected(
          Error::from_errno(errno, fmt::format("can't stat {}", printable(path))));
    }
    shards.drives_.push_back(drives.emplace(status.st_dev, drives.size()).first->second);
    shards.files_.push_back(std::move(file));
  }
  shards.drive_count_ = drives.size();
  direct.merge(buffered);
  shards.description_ = fmt::format("{}", fmt::join(direct, " and "));
  return shards;
}

}  // namespace trash_panda::runtime
