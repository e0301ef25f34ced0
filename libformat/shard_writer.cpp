#include "shard_writer.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"

#include "chunk_pipeline.h"
#include "page_writer.h"
#include "shard_header.h"

namespace trash_panda::format {

namespace {

/// Reading alone takes two threads; coding as many as there are cores, within what a drive can use.
constexpr unsigned kReadThreadCount = 2;
constexpr unsigned kCodeThreadCountMax = 8;
/// Buffers beside those that are being filled: one is hashed, one is written, and one is ready for
/// each of them.
constexpr std::size_t kReadyBufferCount = 4;

unsigned fill_thread_count(const std::vector<PackChunk>& chunks) {
  return std::ranges::any_of(chunks, &PackChunk::is_coded)
             ? std::clamp(std::thread::hardware_concurrency(), kReadThreadCount,
                          kCodeThreadCountMax)
             : kReadThreadCount;
}

std::uint64_t bytes_to_next(std::uint64_t position, std::uint64_t alignment) {
  return (alignment - position % alignment) % alignment;
}

/// Says where chunks come to lie, as they come by in order, and what the checksums of their extents
/// are.
class ExtentPlacer {
 public:
  /// Zeros around the bytes of a chunk.
  struct Padding {
    std::uint64_t before_bytes = 0;
    std::uint64_t behind_bytes = 0;
  };

  ExtentPlacer(Manifest& manifest, std::uint64_t offset_bytes, std::size_t chunk_count)
      : manifest_(manifest), extent_offset_bytes_(offset_bytes), paddings_(chunk_count) {}

  void place(std::size_t chunk_index, const PackChunk& chunk, std::span<const std::byte> bytes) {
    PackedExtent& extent = manifest_.extents[chunk.extent_index];
    Padding& padding = paddings_[chunk_index];
    if (chunk.begins_extent) {
      extent.offset_bytes = extent_offset_bytes_;
      position_ = 0;
    }
    if (chunk.begins_span) {
      padding.before_bytes = bytes_to_next(position_, kTensorAlignment);
      add_zeros(padding.before_bytes);
      for (PackedTensor& tensor :
           std::span(extent.tensors).subspan(chunk.first_tensor, chunk.tensor_count)) {
        tensor.stored_offset_bytes = position_ + (tensor.offset_bytes - chunk.begin_bytes);
      }
    }
    checksum_.update(bytes);
    position_ += bytes.size();
    if (chunk.ends_span && chunk.is_coded) {
      PackedTensor& tensor = extent.tensors[chunk.first_tensor];
      tensor.stored_bytes = position_ - tensor.stored_offset_bytes;
    }
    if (chunk.ends_extent) {
      padding.behind_bytes = bytes_to_next(position_, manifest_.page_bytes);
      add_zeros(padding.behind_bytes);
      extent.stored_bytes = position_;
      extent.checksum = std::exchange(checksum_, Checksum()).hex();
      extent_offset_bytes_ += position_;
    }
  }

  /// Of a chunk that was placed.
  [[nodiscard]] const Padding& padding(std::size_t chunk_index) const {
    return paddings_[chunk_index];
  }

 private:
  void add_zeros(std::uint64_t size_bytes) {
    static constexpr std::array<std::byte, 4096> kZeroPage{};
    position_ += size_bytes;
    while (size_bytes > 0) {
      const std::uint64_t piece_bytes = std::min<std::uint64_t>(size_bytes, kZeroPage.size());
      checksum_.update(std::span(kZeroPage).first(piece_bytes));
      size_bytes -= piece_bytes;
    }
  }

  Manifest& manifest_;
  std::uint64_t extent_offset_bytes_;  ///< Of the extent that is being placed, in its shard.
  std::uint64_t position_ = 0;         ///< In that extent.
  Checksum checksum_;
  std::vector<Padding> paddings_;
};

/// What writing a pack goes through: the sizes of codes are not known before.
std::uint64_t work_bytes(const Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const PackedShard& shard : manifest.shards) {
    bytes += shard.header_bytes;
  }
  for (const PackedExtent& extent : manifest.extents) {
    bytes += extent.raw_bytes;
  }
  return bytes;
}

}  // namespace

ShardWriter::ShardWriter(FileSystem& file_system, std::filesystem::path folder,
                         const ExtentSource& source, const PackOptions& options,
                         PackJournal& journal, Manifest& manifest)
    : file_system_(file_system),
      folder_(std::move(folder)),
      source_(source),
      options_(options),
      journal_(journal),
      manifest_(manifest),
      progress_{.done_bytes = 0, .total_bytes = work_bytes(manifest)},
      pace_(options.write_bytes_per_s_max, options.stop) {}

Result<void> ShardWriter::write(std::uint32_t shard_index, std::span<const std::size_t> extents,
                                std::size_t finished_count) {
  PackedShard& shard = manifest_.shards[shard_index];
  std::uint64_t kept_bytes = 0;
  for (const std::size_t extent_index : extents.first(finished_count)) {
    const PackedExtent& extent = manifest_.extents[extent_index];
    kept_bytes = extent.offset_bytes + extent.stored_bytes;
    progress_.skipped_bytes += extent.raw_bytes;
    advance(extent.raw_bytes);
  }
  TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, open(shard, kept_bytes));
  Result<void> written = write_extents(*file, extents.subspan(finished_count),
                                       std::max(kept_bytes, shard.header_bytes));
  if (!written && written.error().code() == ErrorCode::kInterrupted) {
    // What was written so far is worth keeping; where that fails, less is kept.
    if (Result<void> entered = enter_finished(file->sync()); !entered) {
      options_.log(LogLevel::kWarning, entered.error().to_string());
    }
  }
  TP_RETURN_IF_ERROR(std::move(written));
  const PackedExtent& last = manifest_.extents[extents.back()];
  shard.size_bytes = last.offset_bytes + last.stored_bytes;
  TP_RETURN_IF_ERROR(write_header(*file, shard_index));
  TP_RETURN_IF_ERROR(enter_finished(file->sync()));
  return file->close();
}

Result<std::unique_ptr<WritableFile>> ShardWriter::open(const PackedShard& shard,
                                                        std::uint64_t kept_bytes) {
  const std::filesystem::path path = folder_ / shard.name;
  if (file_system_.exists(path)) {
    return file_system_.open_file(path, kept_bytes, WriteMode::kDirect);
  }
  TP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file,
                      file_system_.create_file(path, WriteMode::kDirect));
  // The journal will speak of it.
  TP_RETURN_IF_ERROR(file_system_.sync_directory(folder_));
  return file;
}

Result<void> ShardWriter::write_extents(WritableFile& file, std::span<const std::size_t> extents,
                                        std::uint64_t offset_bytes) {
  std::vector<PackChunk> chunks;
  for (const std::size_t extent_index : extents) {
    source_.add_chunks(extent_index, chunks);
  }
  ExtentPlacer placer(manifest_, offset_bytes, chunks.size());
  TP_ASSIGN_OR_RETURN(PageWriter writer, PageWriter::create(file, offset_bytes));
  const auto fill = [&](std::size_t i, std::span<std::byte> buffer) {
    return source_.fill(chunks[i], buffer);
  };
  const auto place = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
    placer.place(i, chunks[i], bytes);
    return {};
  };
  const auto write = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
    TP_RETURN_IF_ERROR(pace_.wait_for(bytes.size()));
    TP_RETURN_IF_ERROR(writer.append_zeros(placer.padding(i).before_bytes));
    TP_RETURN_IF_ERROR(writer.append(bytes));
    TP_RETURN_IF_ERROR(writer.append_zeros(placer.padding(i).behind_bytes));
    if (chunks[i].ends_extent) {
      TP_RETURN_IF_ERROR(writer.flush());
      TP_RETURN_IF_ERROR(finish_extent(file, chunks[i].extent_index));
    }
    advance(chunks[i].end_bytes - chunks[i].begin_bytes);
    return {};
  };
  const unsigned thread_count = fill_thread_count(chunks);
  return run_chunk_pipeline(chunks.size(),
                            {.buffer_bytes = PackChunk::kBufferBytes,
                             .buffer_count = thread_count + kReadyBufferCount,
                             .thread_count = thread_count,
                             .stop = options_.stop},
                            fill, {place, write});
}

Result<void> ShardWriter::finish_extent(WritableFile& file, std::size_t extent_index) {
  const PackedExtent& extent = manifest_.extents[extent_index];
  finished_.push_back(&extent);
  finished_bytes_ += extent.stored_bytes;
  return finished_bytes_ < options_.journal_bytes ? Result<void>() : enter_finished(file.sync());
}

Result<void> ShardWriter::enter_finished(Result<void> synced) {
  TP_RETURN_IF_ERROR(std::move(synced));
  finished_bytes_ = 0;
  return finished_.empty() ? Result<void>() : journal_.append(std::exchange(finished_, {}));
}

Result<void> ShardWriter::write_header(WritableFile& file, std::uint32_t shard_index) {
  PackedShard& shard = manifest_.shards[shard_index];
  TP_ASSIGN_OR_RETURN(const std::string header, make_shard_header(manifest_, shard_index));
  TP_ASSERT(header.size() == shard.header_bytes);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(header));
  shard.header_checksum = checksum_hex(bytes);
  TP_RETURN_IF_ERROR(file.write_at(0, bytes));
  advance(bytes.size());
  return {};
}

void ShardWriter::advance(std::uint64_t bytes) {
  progress_.done_bytes += bytes;
  if (options_.progress) {
    options_.progress(progress_);
  }
}

}  // namespace trash_panda::format
