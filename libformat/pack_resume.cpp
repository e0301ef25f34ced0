#include "pack_resume.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/pack_writer.h"

#include "bulk_reader.h"
#include "chunk_pipeline.h"
#include "coded_extent.h"
#include "conversion_line.h"
#include "extent_placer.h"
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

/// Makes an extent of the source, as if to write it. @return Its checksum; empty where the source
/// is no longer what the layout was made of.
Result<std::string> source_checksum(const ExtentSource& source, Manifest manifest,
                                    std::size_t extent_index, StopFlag stop) {
  std::vector<PackChunk> chunks;
  source.add_chunks(extent_index, chunks);
  ExtentPlacer placer(manifest, 0, chunks.size());
  const auto fill = [&](std::size_t i, std::span<std::byte> buffer) {
    return source.fill(chunks[i], buffer);
  };
  const auto place = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
    placer.place(i, chunks[i], bytes);
    return {};
  };
  const Result<void> made = run_chunk_pipeline(
      chunks.size(),
      {.buffer_bytes = PackChunk::kBufferBytes, .buffer_count = 4, .thread_count = 2, .stop = stop},
      fill, {place});
  if (!made && made.error().code() != ErrorCode::kStale) {
    return std::unexpected(made.error());
  }
  return made ? manifest.extents[extent_index].checksum : std::string();
}

/// Whether an extent is what becomes of one that was laid out: the same but for its place, its
/// checksum, and where its tensors are stored, which still fits. A journal is not trusted more than
/// a manifest.
bool is_written_form(const PackedExtent& found, const PackedExtent& expected,
                     std::uint64_t page_bytes) {
  if (found.tensors.size() != expected.tensors.size() || found.stored_bytes == 0 ||
      found.stored_bytes > expected.stored_bytes || found.stored_bytes % page_bytes != 0) {
    return false;
  }
  PackedExtent as_laid_out = found;
  as_laid_out.offset_bytes = expected.offset_bytes;
  as_laid_out.stored_bytes = expected.stored_bytes;
  as_laid_out.checksum = expected.checksum;
  for (std::size_t t = 0; t < found.tensors.size(); ++t) {
    as_laid_out.tensors[t].stored_offset_bytes = expected.tensors[t].stored_offset_bytes;
    as_laid_out.tensors[t].stored_bytes = expected.tensors[t].stored_bytes;
  }
  return as_laid_out == expected && check_stored_places(found).has_value();
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
    if (!is_written_form(found, expected, manifest.page_bytes) ||
        found.offset_bytes != ends_bytes[expected.shard_index]) {
      return false;
    }
    ends_bytes[expected.shard_index] += found.stored_bytes;
  }
  return true;
}

/// Takes the last extents off a journal that are not in their shards as it says.
Result<void> drop_damaged(JournalContents& journal, const StagingDirectory& staging,
                          const Manifest& manifest, StopFlag stop) {
  while (!journal.extents.empty()) {
    const PackedExtent& last = journal.extents.back();
    TP_ASSIGN_OR_RETURN(
        const std::string found,
        read_checksum(staging.path() / manifest.shards[last.shard_index].name, last, stop));
    if (found == last.checksum) {
      break;
    }
    journal.extents.pop_back();
    journal.ends_bytes.pop_back();
  }
  return {};
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
                                      const Manifest& manifest, const ExtentSource& source,
                                      StopFlag stop) {
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
  TP_RETURN_IF_ERROR(drop_damaged(journal, staging, manifest, stop));
  if (journal.extents.empty()) {
    return ResumePoint{.extents = {}, .obstacle = "what it had finished is damaged"};
  }
  const std::size_t last = write_order(manifest)[journal.extents.size() - 1];
  TP_ASSIGN_OR_RETURN(const std::string checksum, source_checksum(source, manifest, last, stop));
  if (checksum != journal.extents.back().checksum) {
    return ResumePoint{
        .extents = {},
        .obstacle = fmt::format("the checkpoint no longer gives the bytes of its extent \"{}\"",
                                printable(manifest.extents[last].name)),
        .is_stale = true};
  }
  return ResumePoint{.extents = std::move(journal.extents),
                     .journal_bytes = journal.ends_bytes.back(),
                     .obstacle = {}};
}

bool pack_can_resume(const std::filesystem::path& target) {
  return !read_journal(partial_pack_path(target) / kStagingMarkName).extents.empty();
}

std::string conversion_record_key(std::string_view chosen_by, const SourceWatch& watch) {
  const std::string text = fmt::format("{}\n{}", chosen_by, watch.state());
  return checksum_hex(std::as_bytes(std::span(text)));
}

std::optional<std::map<std::size_t, WeightConversion>> interrupted_conversions(
    const std::filesystem::path& target, const Checkpoint& checkpoint, std::string_view key) {
  const JournalContents journal = read_journal(partial_pack_path(target) / kStagingMarkName);
  const Result<SourceWatch> watch = SourceWatch::start(checkpoint);
  if (journal.extents.empty() || !watch) {
    return std::nullopt;
  }
  Result<ConversionRecord> record = parse_conversion_line(journal.conversions);
  if (!record || record->key != conversion_record_key(key, *watch)) {
    return std::nullopt;
  }
  return std::move(record)->conversions;
}

}  // namespace trash_panda::format
