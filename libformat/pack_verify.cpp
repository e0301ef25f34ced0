#include "trash_panda/format/pack_verify.h"

#include <algorithm>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/safetensors_header.h"

#include "bulk_reader.h"
#include "chunk_pipeline.h"
#include "shard_header.h"

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

std::vector<VerifyChunk> chunks_of(std::span<const Section> sections) {
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

std::string section_name(const Section& section) {
  return section.extent == nullptr ? "its header"
                                   : fmt::format("extent \"{}\"", printable(section.extent->name));
}

std::string mismatch_line(const PackedShard& shard, const Section& section,
                          std::string_view found) {
  return fmt::format("{}: {} differs ({} bytes at {}: checksum {}, written as {})",
                     printable(shard.name), section_name(section), section.size_bytes,
                     section.offset_bytes, found, *section.checksum);
}

std::string unreadable_line(const PackedShard& shard, const Section& section, const Error& error) {
  return fmt::format("{}: {} can't be read: {}", printable(shard.name), section_name(section),
                     error.message());
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

  /// Reads what there is of a shard: what can't be read differs.
  Result<void> verify_shard(std::size_t shard_index) {
    const PackedShard& shard = manifest_.shards[shard_index];
    const std::vector<Section> sections = sections_of(manifest_, shard_index, options_.depth);
    const Result<BulkReader> reader = BulkReader::open(pack_ / shard.name);
    if (!reader) {
      for (const Section& section : sections_of(manifest_, shard_index, VerifyDepth::kFull)) {
        add_unreadable(shard, section, reader.error());
      }
      return {};
    }
    report_.is_direct = report_.is_direct && reader->mode() == ReadMode::kDirect;
    std::error_code error;
    const std::uint64_t size_bytes = std::filesystem::file_size(pack_ / shard.name, error);
    if (!error && size_bytes != shard.size_bytes) {
      report_.mismatches.push_back(fmt::format("{} has {} bytes, but the manifest says {}",
                                               printable(shard.name), size_bytes,
                                               shard.size_bytes));
    }
    std::span<const Section> rest = sections;
    while (!rest.empty()) {
      std::size_t done_count = 0;
      const Result<void> read = verify_sections(*reader, shard, rest, done_count);
      if (!read && read.error().code() == ErrorCode::kInterrupted) {
        return read;
      }
      if (!read) {
        add_unreadable(shard, rest[done_count], read.error());
        ++done_count;
      }
      rest = rest.subspan(done_count);
    }
    verify_names(shard_index);
    return {};
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
  /// Compares a header with the manifest, if it is the one that was written.
  void verify_names(std::size_t shard_index) {
    const PackedShard& shard = manifest_.shards[shard_index];
    std::string header(shard.header_bytes, '\0');
    const Result<File> file = File::open(pack_ / shard.name);
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(header));
    if (!file || !file->read_exact_at(0, bytes) || checksum_hex(bytes) != shard.header_checksum) {
      return;  // That was told.
    }
    const Result<std::uint64_t> size_bytes = read_header_size(bytes, shard.size_bytes);
    const Result<void> checked =
        !size_bytes ? std::unexpected(size_bytes.error())
        : *size_bytes > header.size() - kLengthFieldBytes
            ? std::unexpected(Error(ErrorCode::kCorrupt, "it is longer than the manifest says"))
            : check_shard_header(manifest_, static_cast<std::uint32_t>(shard_index),
                                 std::string_view(header).substr(kLengthFieldBytes, *size_bytes));
    if (!checked) {
      report_.mismatches.push_back(fmt::format("{}: its header is not that of the manifest: {}",
                                               printable(shard.name), checked.error().message()));
    }
  }

  /// Reads and compares sections that follow one another.
  /// @param done_count  How many were, up to the first that can't be read.
  Result<void> verify_sections(const BulkReader& reader, const PackedShard& shard,
                               std::span<const Section> sections, std::size_t& done_count) {
    const std::vector<VerifyChunk> chunks = chunks_of(sections);
    Checksum checksum;
    const auto use = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
      checksum.update(bytes);
      const bool is_last =
          i + 1 == chunks.size() || chunks[i + 1].section_index != chunks[i].section_index;
      if (is_last) {
        compare(shard, sections[chunks[i].section_index], checksum.hex());
        checksum = Checksum();
        ++done_count;
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

  void add_unreadable(const PackedShard& shard, const Section& section, const Error& error) {
    report_.mismatches.push_back(unreadable_line(shard, section, error));
    const bool is_gone = error.code() == ErrorCode::kCorrupt || error.code() == ErrorCode::kMissing;
    report_.unreadable_count += is_gone ? 0 : 1;
  }

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
  TP_ASSIGN_OR_RETURN(const Manifest manifest, read_manifest_only(pack));
  Verifier verifier(pack, manifest, options);
  TP_RETURN_IF_ERROR(verifier.verify_plan());
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    TP_RETURN_IF_ERROR(verifier.verify_shard(i));
  }
  return verifier.take_report();
}

}  // namespace trash_panda::format
