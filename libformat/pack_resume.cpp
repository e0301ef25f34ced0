#include "pack_resume.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/pack_writer.h"

#include "bulk_reader.h"
#include "chunk_pipeline.h"
#include "left_over.h"
#include "pack_journal.h"

namespace trash_panda::format {

namespace {

constexpr std::uint64_t kCheckChunkBytes = 4'194'304;

/// Reads an extent back. @return Its checksum; empty where it can't be read.
Result<std::string> read_checksum(const std::filesystem::path& shard, const PackedExtent& extent,
                                  StopFlag stop) {
  const Result<BulkReader> reader = BulkReader::open(shard);
  if (!reader) {
    return std::string();
  }
  const std::uint64_t chunk_count = (extent.stored_bytes + kCheckChunkBytes - 1) / kCheckChunkBytes;
  Checksum checksum;
  const auto fill = [&](std::size_t i, std::span<std::byte> buffer) {
    const std::uint64_t at = i * kCheckChunkBytes;
    return reader->read(extent.offset_bytes + at,
                        std::min(kCheckChunkBytes, extent.stored_bytes - at), buffer);
  };
  const auto use = [&](std::size_t, std::span<const std::byte> bytes) -> Result<void> {
    checksum.update(bytes);
    return {};
  };
  const Result<void> read =
      run_chunk_pipeline(chunk_count,
                         {.buffer_bytes = kCheckChunkBytes + kBulkReadSlackBytes,
                          .buffer_count = 4,
                          .thread_count = 2,
                          .stop = stop},
                         fill, {use});
  if (!read && read.error().code() == ErrorCode::kInterrupted) {
    return std::unexpected(read.error());
  }
  return read ? checksum.hex() : std::string();
}

/// Whether the journal's extents are the first ones of this pack, one behind the other.
bool are_first(const std::vector<PackedExtent>& extents, const Manifest& manifest) {
  const std::vector<std::size_t> order = write_order(manifest);
  if (extents.size() > order.size()) {
    return false;
  }
  std::vector<std::uint64_t> ends_bytes;
  for (const PackedShard& shard : manifest.shards) {
    ends_bytes.push_back(shard.header_bytes);
  }
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const PackedExtent& expected = manifest.extents[order[i]];
    const PackedExtent& found = extents[i];
    const bool is_same = found.name == expected.name && found.tier == expected.tier &&
                         found.shard_index == expected.shard_index &&
                         found.raw_bytes == expected.raw_bytes && found.codec == expected.codec &&
                         found.tensors.size() == expected.tensors.size() &&
                         found.stored_bytes <= expected.stored_bytes;
    if (!is_same || found.offset_bytes != ends_bytes[expected.shard_index]) {
      return false;
    }
    ends_bytes[expected.shard_index] += found.stored_bytes;
  }
  return true;
}

}  // namespace

std::vector<std::size_t> write_order(const Manifest& manifest) {
  std::vector<std::size_t> order;
  for (std::uint32_t shard = 0; shard < manifest.shards.size(); ++shard) {
    for (std::size_t i = 0; i < manifest.extents.size(); ++i) {
      if (manifest.extents[i].shard_index == shard) {
        order.push_back(i);
      }
    }
  }
  return order;
}

Result<ResumePoint> find_resume_point(const StagingDirectory& staging, const std::string& key,
                                      const Manifest& manifest, StopFlag stop) {
  JournalContents journal = read_journal(staging.journal_path());
  if (journal.extents.empty()) {
    return ResumePoint{.extents = {}, .obstacle = "it had finished no extent"};
  }
  if (journal.key != key) {
    return ResumePoint{.extents = {},
                       .obstacle = "the checkpoint, the plan or an option is another one now",
                       .is_stale = true};
  }
  if (!are_first(journal.extents, manifest)) {
    return ResumePoint{.extents = {}, .obstacle = "its journal does not fit"};
  }
  while (!journal.extents.empty()) {
    const PackedExtent& last = journal.extents.back();
    TP_ASSIGN_OR_RETURN(
        const std::string found,
        read_checksum(staging.path() / manifest.shards[last.shard_index].name, last, stop));
    if (found == last.checksum) {
      return ResumePoint{.extents = std::move(journal.extents),
                         .journal_bytes = journal.ends_bytes.back(),
                         .obstacle = {}};
    }
    journal.extents.pop_back();
    journal.ends_bytes.pop_back();
  }
  return ResumePoint{.extents = {}, .obstacle = "what it had finished is damaged"};
}

bool pack_can_resume(const std::filesystem::path& target) {
  return !read_journal(partial_pack_path(target) / kStagingMarkName).extents.empty();
}

}  // namespace trash_panda::format
