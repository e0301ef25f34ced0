#include "shard_writer.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/linked_shard.h"

#include "chunk_pipeline.h"
#include "extent_placer.h"
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

WriteMode write_mode(DirectUse direct) {
  switch (direct) {
    case DirectUse::kAuto:
      return WriteMode::kDirect;
    case DirectUse::kAlways:
      return WriteMode::kDirectOnly;
    case DirectUse::kNever:
      break;
  }
  return WriteMode::kBuffered;
}

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
  const Tier tier = manifest_.extents[extents.front()].tier;
  TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, open(shard, tier, kept_bytes));
  Result<void> written = write_extents(*file, extents.subspan(finished_count),
                                       std::max(kept_bytes, shard.header_bytes));
  const bool can_keep = !written && !has_sync_failed_ &&
                        (written.error().code() == ErrorCode::kInterrupted ||
                         written.error().code() == ErrorCode::kOutput);
  if (can_keep) {
    // What was written so far is worth keeping; where that fails, less is kept. Not after a sync
    // that failed: the next one may succeed although data were lost.
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

/// Decides which file a shard is written to; makes the link to one elsewhere, durably.
Result<std::filesystem::path> ShardWriter::place(const PackedShard& shard, Tier tier) {
  std::filesystem::path path = folder_ / shard.name;
  if (std::optional<std::filesystem::path> there = linked_file(path)) {
    return *std::move(there);  // Of the run that is taken on with.
  }
  if (tier != Tier::kDisk || options_.disk_prefix.empty()) {
    return path;
  }
  // Before the file: whatever happens, the link says what there is to be removed.
  std::filesystem::path file = new_linked_file(options_.disk_prefix, shard.name);
  TP_RETURN_IF_ERROR(file_system_.link_symbolically(file, path));
  TP_RETURN_IF_ERROR(file_system_.sync_directory(folder_));
  return file;
}

Result<std::unique_ptr<WritableFile>> ShardWriter::open(const PackedShard& shard, Tier tier,
                                                        std::uint64_t kept_bytes) {
  TP_ASSIGN_OR_RETURN(const std::filesystem::path path, place(shard, tier));
  const WriteMode mode = write_mode(options_.direct);
  if (file_system_.exists(path)) {
    return file_system_.open_file(path, kept_bytes, mode);
  }
  TP_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, file_system_.create_file(path, mode));
  own_linked_file(folder_ / shard.name);
  // The journal will speak of it.
  TP_RETURN_IF_ERROR(file_system_.sync_directory(path.parent_path()));
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
  has_sync_failed_ = has_sync_failed_ || !synced;
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
