#include <span>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/checksum.h"
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
    TP_RETURN_IF_ERROR(staging.clear());
    for (const PackedShard& shard : manifest.shards) {
      Result<void> linked = file_system.link(pack / shard.name, staging.path() / shard.name);
      if (!linked) {
        return std::unexpected(
            std::move(linked).error().with_hint("repack the checkpoint with the new plan"));
      }
    }
    TP_RETURN_IF_ERROR(
        write_staged_text(file_system, staging.path() / kPackPlanName, retiering.plan_toml));
    TP_RETURN_IF_ERROR(file_system.sync_directory(staging.path()));
    TP_RETURN_IF_ERROR(
        write_staged_text(file_system, staging.path() / kManifestName, write_manifest(manifest)));
    TP_RETURN_IF_ERROR(file_system.sync_directory(staging.path()));
    return staging.commit();
  };
  if (Result<void> written = write_all(); !written) {
    staging.discard(log);
    return std::unexpected(std::move(written).error());
  }
  return manifest;
}

}  // namespace trash_panda::format
