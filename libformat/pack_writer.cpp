#include "trash_panda/format/pack_writer.h"

#include <algorithm>
#include <sys/stat.h>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/linked_shard.h"

#include "conversion_line.h"
#include "extent_source.h"
#include "manifest_check.h"
#include "pack_journal.h"
#include "pack_resume.h"
#include "shard_writer.h"
#include "source_watch.h"
#include "staged_text.h"
#include "staging_directory.h"

namespace trash_panda::format {

namespace {

bool are_on_one_filesystem(const std::filesystem::path& path, const std::filesystem::path& other) {
  struct stat one = {};
  struct stat two = {};
  return ::stat(path.c_str(), &one) == 0 && ::stat(other.c_str(), &two) == 0 &&
         one.st_dev == two.st_dev;
}

/// What a file, which may be a link to another drive, takes of the drive of a folder.
std::uint64_t bytes_on_drive(const std::filesystem::path& file,
                             const std::filesystem::path& folder) {
  std::error_code error;
  const std::uint64_t size_bytes = std::filesystem::file_size(file, error);
  return !error && are_on_one_filesystem(file, folder) ? size_bytes : 0;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

/// Upper bound of what the pack takes besides the shards, the manifest with its checksums included.
std::uint64_t text_bytes(const Manifest& manifest, const PackLayout& layout) {
  constexpr std::uint64_t kChecksumDigits = 32;
  return layout.plan_toml.size() + write_manifest(manifest).size() +
         kChecksumDigits * (manifest.extents.size() + manifest.shards.size() + 1);
}

Tier tier_of(const Manifest& manifest, std::uint32_t shard_index) {
  const auto extent = std::ranges::find(manifest.extents, shard_index, &PackedExtent::shard_index);
  TP_ASSERT(extent != manifest.extents.end());
  return extent->tier;
}

/// Fills the staging folder of one pack.
class PackWrite {
 public:
  PackWrite(FileSystem& file_system, StagingDirectory& staging, const SourceWatch& watch,
            const PackLayout& layout, const PackOptions& options, Manifest& manifest)
      : file_system_(file_system),
        staging_(staging),
        watch_(watch),
        layout_(layout),
        options_(options),
        manifest_(manifest),
        can_resume_(staging.is_left_over()) {}

  /// The order is what makes the manifest a commit point: when it is durable, so is all that it
  /// speaks of.
  Result<void> run(const ExtentSource& source) {
    TP_ASSIGN_OR_RETURN(PackJournal journal, open_journal(source));
    Result<void> written = write_shards(source, journal);
    can_resume_ = journal.has_extents();
    TP_RETURN_IF_ERROR(std::move(written));
    TP_RETURN_IF_ERROR(journal.close());
    TP_RETURN_IF_ERROR(watch_.check());
    // Whatever went wrong, a manifest that readers refuse is never the commit point.
    TP_RETURN_IF_ERROR(check_manifest(manifest_, printable(std::filesystem::path(kManifestName))));
    TP_RETURN_IF_ERROR(write_staged_text(file_system_, staging_.path() / kManifestName,
                                         write_manifest(manifest_)));
    return file_system_.sync_directory(staging_.path());
  }

  /// Whether another run can take on with what this one left.
  [[nodiscard]] bool can_resume() const { return can_resume_; }

 private:
  /// What the bytes of the extents depend on: layout, plan, and the files of the source; and where
  /// they go. A copy of the folder has a link to the same shard elsewhere, which it must not write
  /// to: so where there is one, the key is that of this journal only.
  [[nodiscard]] std::string key() const {
    const std::string place =
        options_.disk_prefix.empty()
            ? std::string()
            : options_.disk_prefix.native() + file_identity(staging_.journal_path());
    return checksum_hex(bytes_of(write_manifest(manifest_) + watch_.state() + place));
  }

  [[nodiscard]] std::string conversion_record() const {
    return write_conversion_line({.key = conversion_record_key(layout_.conversions_key, watch_),
                                  .conversions = layout_.conversions});
  }

  [[nodiscard]] Result<void> check_space() const {
    return check_pack_space(file_system_, staging_.target(), layout_, manifest_, options_);
  }

  Result<PackJournal> open_journal(const ExtentSource& source) {
    TP_ASSIGN_OR_RETURN(const ResumePoint point, find_start(source));
    if (point.extents.empty()) {
      // First: what an earlier run finished is not given up for a run that can't begin.
      TP_RETURN_IF_ERROR(check_space());
      if (staging_.is_left_over()) {
        options_.log(LogLevel::kInfo, fmt::format("removing {}, which an interrupted run left: {}",
                                                  printable(staging_.path()), point.obstacle));
      }
      TP_ASSIGN_OR_RETURN(
          PackJournal journal,
          PackJournal::begin(file_system_, staging_.journal_path(), key(), conversion_record()));
      TP_RETURN_IF_ERROR(staging_.clear(options_.log));
      can_resume_ = false;
      return journal;
    }
    finished_count_ = point.extents.size();
    const std::vector<std::size_t> order = write_order(manifest_);
    std::uint64_t finished_bytes = 0;
    for (std::size_t i = 0; i < finished_count_; ++i) {
      manifest_.extents[order[i]] = point.extents[i];
      finished_bytes += point.extents[i].stored_bytes;
    }
    options_.log(LogLevel::kInfo,
                 fmt::format("taking on with {}: {} of {} extents, {}, are finished",
                             printable(staging_.path()), finished_count_, order.size(),
                             format_bytes(finished_bytes)));
    TP_RETURN_IF_ERROR(check_space());
    return PackJournal::resume(file_system_, staging_.journal_path(), point.journal_bytes);
  }

  /// Decides whether to take on with what is there.
  Result<ResumePoint> find_start(const ExtentSource& source) {
    if (!staging_.is_left_over()) {
      return ResumePoint{};
    }
    ResumePoint point{.extents = {}, .obstacle = "as was asked for"};
    if (options_.resume != ResumeMode::kNever) {
      TP_ASSIGN_OR_RETURN(point,
                          find_resume_point(staging_, key(), manifest_, source, options_.stop));
    }
    if (point.is_stale && !options_.disk_prefix.empty()) {
      point.obstacle += ", or the folder is a copy";
    }
    if (point.is_stale && options_.resume == ResumeMode::kAlways) {
      return std::unexpected(
          Error(ErrorCode::kStale, fmt::format("can't take on with {}, which an interrupted run "
                                               "left: {}",
                                               printable(staging_.path()), point.obstacle))
              .with_hint("--no-resume starts anew"));
    }
    return point;
  }

  Result<void> write_shards(const ExtentSource& source, PackJournal& journal) {
    // First, so that a later run finds what this one was made for.
    TP_RETURN_IF_ERROR(
        write_staged_text(file_system_, staging_.path() / kPackPlanName, layout_.plan_toml));
    TP_RETURN_IF_ERROR(file_system_.sync_directory(staging_.path()));
    ShardWriter writer(file_system_, staging_.path(), source, options_, journal, manifest_);
    const std::vector<std::size_t> order = write_order(manifest_);
    std::span<const std::size_t> rest = order;
    std::size_t finished_count = finished_count_;
    for (std::uint32_t shard = 0; shard < manifest_.shards.size(); ++shard) {
      const auto next = std::ranges::find_if(
          rest, [&](std::size_t i) { return manifest_.extents[i].shard_index != shard; });
      const auto count = static_cast<std::size_t>(next - rest.begin());
      const std::size_t finished_here = std::min(count, finished_count);
      TP_RETURN_IF_ERROR(writer.write(shard, rest.first(count), finished_here));
      rest = rest.subspan(count);
      finished_count -= finished_here;
    }
    return {};
  }

  FileSystem& file_system_;
  StagingDirectory& staging_;
  const SourceWatch& watch_;
  const PackLayout& layout_;
  const PackOptions& options_;
  Manifest& manifest_;
  std::size_t finished_count_ = 0;  ///< By an earlier run, in the order of writing.
  bool can_resume_;
};

}  // namespace

std::vector<DriveNeed> pack_drive_needs(const std::filesystem::path& target,
                                        const PackLayout& layout, const Manifest& manifest,
                                        const PackOptions& options) {
  std::vector<DriveNeed> needs = {
      {.folder = target.has_parent_path() ? target.parent_path() : std::filesystem::path("."),
       .needed_bytes = text_bytes(manifest, layout)}};
  if (!options.disk_prefix.empty() &&
      !are_on_one_filesystem(needs.front().folder, options.disk_prefix.parent_path())) {
    needs.push_back({.folder = options.disk_prefix.parent_path()});
  }
  const PackSize size = pack_size(manifest);
  for (std::uint32_t i = 0; i < manifest.shards.size(); ++i) {
    const PackedShard& shard = manifest.shards[i];
    const Tier tier = tier_of(manifest, i);
    const std::uint64_t shard_bytes = shard.header_bytes + size.tier_bytes.at(tier);
    DriveNeed& need = tier == Tier::kDisk ? needs.back() : needs.front();
    // An earlier run's shard takes some of it already: a rerun writes over that, or removes it.
    const std::uint64_t there_bytes =
        bytes_on_drive(partial_pack_path(target) / shard.name, need.folder);
    need.needed_bytes += shard_bytes - std::min(there_bytes, shard_bytes);
  }
  return needs;
}

Result<void> check_pack_space(FileSystem& file_system, const std::filesystem::path& target,
                              const PackLayout& layout, const Manifest& manifest,
                              const PackOptions& options) {
  for (const auto& [folder, needed_bytes] : pack_drive_needs(target, layout, manifest, options)) {
    TP_ASSIGN_OR_RETURN(const std::uint64_t free_bytes, file_system.free_bytes(folder));
    if (free_bytes < needed_bytes || free_bytes - needed_bytes < options.reserve_bytes) {
      return std::unexpected(
          Error(ErrorCode::kOutput,
                fmt::format("not enough space on the drive of {} ({}): the pack takes {} and {} "
                            "are to stay free, but only {} are free",
                            printable(folder), filesystem_name(folder), format_bytes(needed_bytes),
                            format_bytes(options.reserve_bytes), format_bytes(free_bytes)))
              .with_hint("free some, choose an output on another drive, or lower the reserve"));
    }
  }
  return {};
}

Result<Manifest> write_pack(FileSystem& file_system, const Checkpoint& checkpoint,
                            const WeightTable& weights, const PackLayout& layout,
                            const std::filesystem::path& target, const PackOptions& options) {
  TP_ASSIGN_OR_RETURN(Manifest manifest, lay_out_pack(checkpoint, weights, layout, options));
  manifest.plan_checksum = checksum_hex(bytes_of(layout.plan_toml));
  TP_ASSIGN_OR_RETURN(const SourceWatch watch, SourceWatch::start(checkpoint));
  TP_ASSIGN_OR_RETURN(
      StagingDirectory staging,
      StagingDirectory::create(file_system, target, watch, is_pack_name, options.log));
  const ExtentSource source(checkpoint, weights, layout, manifest, options.direct);
  PackWrite write(file_system, staging, watch, layout, options, manifest);
  Result<void> written = write.run(source);
  if (written) {
    written = staging.commit();
  }
  if (!written) {
    if (Result<void> changed = watch.check(); !changed) {
      // Some of what was written may be of before, some of after.
      staging.discard(options.log);
      return std::unexpected(std::move(changed).error());
    }
    if (!write.can_resume()) {
      staging.discard(options.log);
    }
    return std::unexpected(std::move(written).error());
  }
  return manifest;
}

}  // namespace trash_panda::format
