#include "trash_panda/format/pack_verify.h"

#include <algorithm>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"

#include "bulk_reader.h"
#include "chunk_pipeline.h"

namespace trash_panda::format {

namespace {

/// Several requests of 2 MiB in flight keep SATA and NVMe drives busy; hashing takes one core a
/// fraction of that time.
constexpr std::uint64_t kChunkBytes = 2'097'152;
constexpr std::size_t kVerifyBufferCount = 6;
constexpr unsigned kVerifyThreadCount = 4;

/// A plan is a few hundred bytes per block. The manifest does not say how long it is, and memory
/// must not depend on what a file's length claims.
constexpr std::uint64_t kPlanBytesMax = 67'108'864;

/// A run of a shard's bytes that has one checksum.
struct Section {
  const PackedExtent* extent;  ///< Null for the shard's header.
  std::uint64_t offset_bytes;
  std::uint64_t size_bytes;
  const std::string* checksum;
};

/// The part of a section that is read at a time.
struct VerifyChunk {
  std::size_t section_index;
  std::uint64_t offset_bytes;  ///< From the start of the shard.
  std::uint64_t size_bytes;
};

/// The sections of a shard that are read, by offset; all of them are the whole file.
std::vector<Section> sections_of(const Manifest& manifest, std::size_t shard_index,
                                 VerifyDepth depth) {
  const PackedShard& shard = manifest.shards[shard_index];
  std::vector<Section> sections = {{.extent = nullptr,
                                    .offset_bytes = 0,
                                    .size_bytes = shard.header_bytes,
                                    .checksum = &shard.header_checksum}};
  for (const PackedExtent& extent : manifest.extents) {
    if (depth == VerifyDepth::kFull && extent.shard_index == shard_index) {
      sections.push_back({.extent = &extent,
                          .offset_bytes = extent.offset_bytes,
                          .size_bytes = extent.stored_bytes,
                          .checksum = &extent.checksum});
    }
  }
  std::ranges::sort(sections, {}, &Section::offset_bytes);
  return sections;
}

std::vector<VerifyChunk> chunks_of(const std::vector<Section>& sections) {
  std::vector<VerifyChunk> chunks;
  for (std::size_t i = 0; i < sections.size(); ++i) {
    for (std::uint64_t at = 0; at < sections[i].size_bytes; at += kChunkBytes) {
      chunks.push_back({.section_index = i,
                        .offset_bytes = sections[i].offset_bytes + at,
                        .size_bytes = std::min(kChunkBytes, sections[i].size_bytes - at)});
    }
  }
  return chunks;
}

std::string mismatch_line(const PackedShard& shard, const Section& section,
                          std::string_view found) {
  const std::string what = section.extent == nullptr
                               ? "its header"
                               : fmt::format("extent \"{}\"", printable(section.extent->name));
  return fmt::format("{}: {} differs ({} bytes at {}: checksum {}, written as {})",
                     printable(shard.name), what, section.size_bytes, section.offset_bytes, found,
                     *section.checksum);
}

class Verifier {
 public:
  Verifier(const std::filesystem::path& pack, const Manifest& manifest,
           const VerifyOptions& options)
      : pack_(pack), manifest_(manifest), options_(options) {
    for (const PackedShard& shard : manifest.shards) {
      total_bytes_ += options.depth == VerifyDepth::kFull ? shard.size_bytes : shard.header_bytes;
    }
  }

  Result<void> verify_shard(std::size_t shard_index) {
    const PackedShard& shard = manifest_.shards[shard_index];
    TP_ASSIGN_OR_RETURN(const BulkReader reader, BulkReader::open(pack_ / shard.name));
    report_.is_direct = report_.is_direct && reader.mode() == ReadMode::kDirect;
    const std::vector<Section> sections = sections_of(manifest_, shard_index, options_.depth);
    const std::vector<VerifyChunk> chunks = chunks_of(sections);
    Checksum checksum;
    const auto use = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
      checksum.update(bytes);
      const bool is_last =
          i + 1 == chunks.size() || chunks[i + 1].section_index != chunks[i].section_index;
      if (is_last) {
        compare(shard, sections[chunks[i].section_index], checksum.hex());
        checksum = Checksum();
      }
      advance(bytes.size());
      return {};
    };
    return run_chunk_pipeline(chunks.size(),
                              {.buffer_bytes = kChunkBytes + kBulkReadSlackBytes,
                               .buffer_count = kVerifyBufferCount,
                               .thread_count = kVerifyThreadCount,
                               .stop = options_.stop},
                              [&](std::size_t i, std::span<std::byte> buffer) {
                                return reader.read(chunks[i].offset_bytes, chunks[i].size_bytes,
                                                   buffer);
                              },
                              {use});
  }

  /// The plan that the pack was laid out for; small, and read at once.
  Result<void> verify_plan() {
    const Result<File> opened = File::open(pack_ / kPackPlanName);
    if (!opened) {
      const bool is_missing = opened.error().code() == ErrorCode::kMissing;
      return std::unexpected(
          Error(opened.error())
              .with_code(is_missing ? ErrorCode::kCorrupt : opened.error().code())
              .with_hint(is_missing ? "copy or repack it again" : opened.error().hint()));
    }
    const File& file = *opened;
    if (file.size_bytes() > kPlanBytesMax) {
      report_.mismatches.push_back(fmt::format("{} has {} bytes, more than the {} of any plan",
                                               kPackPlanName, file.size_bytes(), kPlanBytesMax));
      return {};
    }
    std::vector<std::byte> bytes(file.size_bytes());
    TP_RETURN_IF_ERROR(file.read_exact_at(0, bytes));
    if (const std::string found = checksum_hex(bytes); found != manifest_.plan_checksum) {
      report_.mismatches.push_back(fmt::format("{} differs (checksum {}, written as {})",
                                               kPackPlanName, found, manifest_.plan_checksum));
    }
    return {};
  }

  [[nodiscard]] VerifyReport take_report() { return std::move(report_); }

 private:
  void compare(const PackedShard& shard, const Section& section, const std::string& found) {
    report_.extent_count += section.extent == nullptr ? 0 : 1;
    if (found != *section.checksum) {
      report_.mismatches.push_back(mismatch_line(shard, section, found));
    }
  }

  void advance(std::uint64_t bytes) {
    report_.verified_bytes += bytes;
    if (options_.progress) {
      options_.progress({.done_bytes = report_.verified_bytes, .total_bytes = total_bytes_});
    }
  }

  const std::filesystem::path& pack_;
  const Manifest& manifest_;
  const VerifyOptions& options_;
  std::uint64_t total_bytes_ = 0;
  VerifyReport report_;
};

}  // namespace

Result<VerifyReport> verify_pack(const std::filesystem::path& pack, const VerifyOptions& options) {
  TP_ASSIGN_OR_RETURN(const Manifest manifest, read_manifest(pack));
  Verifier verifier(pack, manifest, options);
  TP_RETURN_IF_ERROR(verifier.verify_plan());
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    TP_RETURN_IF_ERROR(verifier.verify_shard(i));
  }
  return verifier.take_report();
}

}  // namespace trash_panda::format
