#include "trash_panda/format/pack_writer.h"

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"

#include "bulk_reader.h"
#include "chunk_pipeline.h"
#include "extent_source.h"
#include "shard_header.h"
#include "source_watch.h"
#include "staging_directory.h"

namespace trash_panda::format {

namespace {

/// One chunk is written while the next ones are read.
constexpr std::size_t kBufferCount = 3;
constexpr unsigned kThreadCount = 2;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Writes the files of one pack into a staging folder, and the checksums into its manifest.
class PackFiles {
 public:
  PackFiles(FileSystem& file_system, const std::filesystem::path& folder,
            const ExtentSource& source, const PackOptions& options, Manifest& manifest)
      : file_system_(file_system),
        folder_(folder),
        source_(source),
        options_(options),
        manifest_(manifest),
        progress_{.done_bytes = 0, .total_bytes = pack_size(manifest).total_bytes} {}

  Result<void> write_shard(std::uint32_t shard_index) {
    PackedShard& shard = manifest_.shards[shard_index];
    TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                        file_system_.create_file(folder_ / shard.name));
    TP_ASSIGN_OR_RETURN(const std::string header, make_shard_header(manifest_, shard_index));
    TP_ASSERT(header.size() == shard.header_bytes);
    shard.header_checksum = checksum_hex(bytes_of(header));
    TP_RETURN_IF_ERROR(file->append(bytes_of(header)));
    advance(header.size());
    TP_RETURN_IF_ERROR(write_extents(shard_index, *file));
    TP_RETURN_IF_ERROR(file->sync());
    return file->close();
  }

  Result<void> write_text(std::string_view name, std::string_view text) {
    TP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                        file_system_.create_file(folder_ / name));
    TP_RETURN_IF_ERROR(file->append(bytes_of(text)));
    TP_RETURN_IF_ERROR(file->sync());
    return file->close();
  }

 private:
  Result<void> write_extents(std::uint32_t shard_index, WritableFile& file) {
    const std::vector<PackChunk> chunks = source_.chunks(shard_index);
    Checksum checksum;
    const auto use = [&](std::size_t i, std::span<const std::byte> bytes) -> Result<void> {
      PackedExtent& extent = manifest_.extents[chunks[i].extent_index];
      checksum.update(bytes);
      TP_RETURN_IF_ERROR(file.append(bytes));
      advance(bytes.size());
      if (chunks[i].end_bytes == extent.stored_bytes) {
        extent.checksum = checksum.hex();
        checksum = Checksum();
      }
      return {};
    };
    return run_chunk_pipeline(
        chunks.size(),
        {.buffer_bytes = PackChunk::kBytesMax + kBulkReadSlackBytes,
         .buffer_count = kBufferCount,
         .thread_count = kThreadCount,
         .stop = options_.stop},
        [&](std::size_t i, std::span<std::byte> buffer) { return source_.fill(chunks[i], buffer); },
        use);
  }

  void advance(std::uint64_t bytes) {
    progress_.done_bytes += bytes;
    if (options_.progress) {
      options_.progress(progress_);
    }
  }

  FileSystem& file_system_;
  const std::filesystem::path& folder_;
  const ExtentSource& source_;
  const PackOptions& options_;
  Manifest& manifest_;
  Progress progress_;
};

/// Upper bound of what the pack takes, the manifest with its checksums included.
std::uint64_t needed_bytes(const Manifest& manifest, const PackLayout& layout) {
  constexpr std::uint64_t kChecksumDigits = 32;
  return pack_size(manifest).total_bytes + layout.plan_toml.size() +
         write_manifest(manifest).size() +
         kChecksumDigits * (manifest.extents.size() + manifest.shards.size() + 1);
}

/// Fills the staging folder. The order is what makes the manifest a commit point: when it is
/// durable, so is all that it speaks of.
Result<void> fill_staging(FileSystem& file_system, const StagingDirectory& staging,
                          const ExtentSource& source, const SourceWatch& watch,
                          const PackLayout& layout, const PackOptions& options,
                          Manifest& manifest) {
  TP_RETURN_IF_ERROR(
      check_pack_space(file_system, staging.path(), layout, manifest, options.reserve_bytes));
  PackFiles files(file_system, staging.path(), source, options, manifest);
  for (std::uint32_t i = 0; i < manifest.shards.size(); ++i) {
    TP_RETURN_IF_ERROR(files.write_shard(i));
  }
  TP_RETURN_IF_ERROR(watch.check());
  manifest.plan_checksum = checksum_hex(bytes_of(layout.plan_toml));
  TP_RETURN_IF_ERROR(files.write_text(kPackPlanName, layout.plan_toml));
  TP_RETURN_IF_ERROR(file_system.sync_directory(staging.path()));
  TP_RETURN_IF_ERROR(files.write_text(kManifestName, write_manifest(manifest)));
  return file_system.sync_directory(staging.path());
}

}  // namespace

Result<void> check_pack_space(FileSystem& file_system, const std::filesystem::path& target,
                              const PackLayout& layout, const Manifest& manifest,
                              std::uint64_t reserve_bytes) {
  const std::filesystem::path folder =
      target.has_parent_path() ? target.parent_path() : std::filesystem::path(".");
  const std::uint64_t pack_bytes = needed_bytes(manifest, layout);
  TP_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, file_system.free_bytes(folder));
  if (free_bytes >= pack_bytes && free_bytes - pack_bytes >= reserve_bytes) {
    return {};
  }
  return std::unexpected(
      Error(ErrorCode::kOutput,
            fmt::format("not enough space on the drive of {} ({}): the pack takes {} and {} are to "
                        "stay free, but only {} are free",
                        printable(folder), filesystem_name(folder), format_bytes(pack_bytes),
                        format_bytes(reserve_bytes), format_bytes(free_bytes)))
          .with_hint("free some, choose an output on another drive, or lower the reserve"));
}

Result<Manifest> write_pack(FileSystem& file_system, const Checkpoint& checkpoint,
                            const WeightTable& weights, const PackLayout& layout,
                            const std::filesystem::path& target, const PackOptions& options) {
  TP_ASSIGN_OR_RETURN(Manifest manifest, lay_out_pack(checkpoint, weights, layout, options));
  TP_ASSIGN_OR_RETURN(const SourceWatch watch, SourceWatch::start(checkpoint));
  TP_ASSIGN_OR_RETURN(StagingDirectory staging,
                      StagingDirectory::create(file_system, target, watch, options.log));
  const ExtentSource source(checkpoint, weights, layout, manifest);
  Result<void> written =
      fill_staging(file_system, staging, source, watch, layout, options, manifest);
  if (written) {
    written = staging.commit();
  }
  if (!written) {
    staging.discard(options.log);
    return std::unexpected(std::move(written).error());
  }
  return manifest;
}

}  // namespace trash_panda::format
