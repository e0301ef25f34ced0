#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
#include "trash_panda/format/linked_shard.h"
#include "trash_panda/format/pack_verify.h"
#include "trash_panda/format/pack_writer.h"

#include "staged_text.h"
#include "staging_directory.h"

namespace trash_panda::format {

namespace {

Result<void> set_tiers(Manifest& manifest, const std::vector<Tier>& tiers) {
  if (tiers.size() != manifest.extents.size()) {
    return std::unexpected(Error(
        ErrorCode::kUsage,
        fmt::format("{} tiers are given for {} extents", tiers.size(), manifest.extents.size())));
  }
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    PackedExtent& extent = manifest.extents[i];
    if ((extent.tier == Tier::kBase) != (tiers[i] == Tier::kBase)) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("extent \"{}\" of tier {} can't become {}", printable(extent.name),
                            tier_name(extent.tier), tier_name(tiers[i]))));
    }
    extent.tier = tiers[i];
  }
  return {};
}

/// Gives a shard a name in the new pack: of the file, or of the link that a writer of packs made.
/// The file behind any other link gets a link of its own, whose meaning is the same from
/// everywhere.
Result<void> link_shard(FileSystem& file_system, const std::filesystem::path& shard,
                        const std::filesystem::path& name) {
  std::error_code error;
  if (!std::filesystem::is_symlink(std::filesystem::symlink_status(shard, error)) ||
      linked_file(shard)) {
    Result<void> linked = file_system.link(shard, name);
    return linked ? Result<void>()
                  : std::unexpected(std::move(linked).error().with_hint(
                        "repack the checkpoint with the new plan"));
  }
  const std::filesystem::path file = std::filesystem::canonical(shard, error);
  if (error) {
    return std::unexpected(Error::from_errno(
        error.value(), fmt::format("can't find the file of the shard {}", printable(shard))));
  }
  return file_system.link_symbolically(file, name);
}

/// Opens every shard of a pack and reads its header.
Result<void> check_new_shards(const std::filesystem::path& pack) {
  TP_ASSIGN_OR_RETURN(const VerifyReport report, verify_pack(pack, {.depth = VerifyDepth::kQuick}));
  if (!report.mismatches.empty()) {
    return std::unexpected(Error(ErrorCode::kMismatch,
                                 fmt::format("the pack is damaged: {}", report.mismatches.front()))
                               .with_hint("repack the checkpoint with the new plan"));
  }
  return {};
}

}  // namespace

Result<Manifest> retier_pack(FileSystem& file_system, const std::filesystem::path& pack,
                             const std::filesystem::path& target, const PackRetiering& retiering,
                             const Logger& log) {
  TP_ASSIGN_OR_RETURN(Manifest manifest, read_manifest(pack));
  TP_RETURN_IF_ERROR(set_tiers(manifest, retiering.tiers));
  manifest.plan_checksum = checksum_hex(std::as_bytes(std::span(retiering.plan_toml)));
  TP_ASSIGN_OR_RETURN(
      StagingDirectory staging,
      StagingDirectory::create(file_system, target, SourceWatch(), is_pack_name, log));
  const auto write_all = [&]() -> Result<void> {
    TP_RETURN_IF_ERROR(staging.clear(log));
    for (const PackedShard& shard : manifest.shards) {
      TP_RETURN_IF_ERROR(link_shard(file_system, pack / shard.name, staging.path() / shard.name));
    }
    TP_RETURN_IF_ERROR(
        write_staged_text(file_system, staging.path() / kPackPlanName, retiering.plan_toml));
    TP_RETURN_IF_ERROR(file_system.sync_directory(staging.path()));
    TP_RETURN_IF_ERROR(
        write_staged_text(file_system, staging.path() / kManifestName, write_manifest(manifest)));
    TP_RETURN_IF_ERROR(file_system.sync_directory(staging.path()));
    TP_RETURN_IF_ERROR(check_new_shards(staging.path()));
    return staging.commit();
  };
  if (Result<void> written = write_all(); !written) {
    staging.discard(log);
    return std::unexpected(std::move(written).error());
  }
  return manifest;
}

}  // namespace trash_panda::format
