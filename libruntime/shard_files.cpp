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

/// Opens a file of a checkpoint for direct reads, if its first page can be read so.
Result<File> open_direct(const std::filesystem::path& path, std::uint64_t page_bytes) {
  {
    TP_ASSIGN_OR_RETURN(File file, File::open(path, ReadMode::kDirect));
    TP_ASSIGN_OR_RETURN(const AlignedBuffer page, AlignedBuffer::create(page_bytes));
    if (suits_direct_reads(file, page_bytes) && file.read_at(0, page.span())) {
      return file;
    }
  }
  return File::open(path, ReadMode::kBuffered);
}

}  // namespace

/// Collects open files, their drives and what is to be said of them.
class ShardFiles::Opener {
 public:
  explicit Opener(const Logger& log) : log_(log) {}

  /// @param is_wanted  Whether that it is read buffered, if it is, is as it should be.
  Result<void> add(File file, bool is_wanted) {
    const std::filesystem::path path = file.path();
    const std::string filesystem = filesystem_name(path);
    if (file.mode() == ReadMode::kDirect) {
      modes_.insert(fmt::format("direct ({})", filesystem));
    } else if (!is_wanted && modes_.insert(fmt::format("buffered ({})", filesystem)).second) {
      log_(LogLevel::kWarning,
           fmt::format("{} does not take direct reads ({}): reading through the page cache, which "
                       "costs memory and time; a pack on a local drive is read directly",
                       filesystem, printable(path)));
    }
    struct stat status = {};
    if (::fstat(file.fd(), &status) != 0) {
      return std::unexpected(
          Error::from_errno(errno, fmt::format("can't stat {}", printable(path))));
    }
    shards_.drives_.push_back(drives_.emplace(status.st_dev, drives_.size()).first->second);
    shards_.files_.push_back(std::move(file));
    return {};
  }

  ShardFiles finish() && {
    shards_.drive_count_ = drives_.size();
    // By name, "direct" is before "buffered" as the more important one.
    shards_.description_ = fmt::format("{}", fmt::join(modes_, " and "));
    return std::move(shards_);
  }

 private:
  const Logger& log_;
  ShardFiles shards_;
  std::set<std::string, std::greater<>> modes_;
  std::map<dev_t, std::size_t> drives_;
};

Result<ShardFiles> ShardFiles::open(const std::filesystem::path& pack,
                                    const format::Manifest& manifest, const Logger& log) {
  Opener opener(log);
  for (const format::PackedShard& shard : manifest.shards) {
    TP_ASSIGN_OR_RETURN(File file, open_shard(pack / shard.name, shard, manifest.page_bytes));
    TP_RETURN_IF_ERROR(opener.add(std::move(file), /*is_wanted=*/false));
  }
  return std::move(opener).finish();
}

Result<ShardFiles> ShardFiles::open_checkpoint(const std::vector<std::filesystem::path>& files,
                                               std::uint64_t page_bytes, const Logger& log) {
  Opener opener(log);
  for (std::size_t at = 0; at < files.size(); ++at) {
    const bool is_buffered = at % 2 == 1;
    TP_ASSIGN_OR_RETURN(File file, is_buffered ? File::open(files[at], ReadMode::kBuffered)
                                               : open_direct(files[at], page_bytes));
    TP_RETURN_IF_ERROR(opener.add(std::move(file), is_buffered));
  }
  return std::move(opener).finish();
}

}  // namespace trash_panda::runtime
