#include "repack_retier.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/file_system.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/manifest.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/plan/plan_toml.h"

#include "json_text.h"
#include "model_input.h"
#include "output_file.h"
#include "pack_forms.h"
#include "pack_target.h"
#include "plan_input.h"

namespace trash_panda::cli {

namespace {

namespace fs = std::filesystem;

Error stale_plan(const Setting& plan, std::string why) {
  return Error(ErrorCode::kStale,
               fmt::format("{} was made for another checkpoint than the pack: {}",
                           printable(std::string_view(plan.text)), why))
      .with_hint("make one of the pack's source");
}

/// The tier of each extent by the plan; those of base stay.
Result<std::vector<format::Tier>> tiers_by_plan(const format::Manifest& manifest,
                                                const plan::Plan& plan, const Setting& file) {
  if (plan.model_fingerprint != manifest.source_fingerprint) {
    return std::unexpected(
        stale_plan(file, fmt::format("its fingerprint is {}, that of the pack {}",
                                     printable(std::string_view(plan.model_fingerprint)),
                                     printable(std::string_view(manifest.source_fingerprint)))));
  }
  std::map<std::string_view, format::Tier> planned;
  for (const plan::PlannedBlock& block : plan.blocks) {
    planned.emplace(block.name, block.tier);
  }
  std::vector<format::Tier> tiers;
  std::size_t block_count = 0;
  for (const format::PackedExtent& extent : manifest.extents) {
    const auto found = planned.find(extent.name);
    if (extent.tier == format::Tier::kBase) {
      tiers.push_back(extent.tier);
    } else if (found == planned.end()) {
      return std::unexpected(
          stale_plan(file, fmt::format("it has no block {}", printable(extent.name))));
    } else {
      tiers.push_back(found->second);
      ++block_count;
    }
  }
  if (block_count != plan.blocks.size()) {
    return std::unexpected(stale_plan(
        file, fmt::format("it has {} blocks, the pack {}", plan.blocks.size(), block_count)));
  }
  return tiers;
}

void warn_of_kept_forms(const format::Manifest& manifest, const plan::Plan& plan,
                        Console& console) {
  std::set<std::string_view> coded;
  for (const format::PackedExtent& extent : manifest.extents) {
    if (std::ranges::any_of(extent.tensors, [](const format::PackedTensor& tensor) {
          return tensor.coding != format::TensorCoding::kRaw;
        })) {
      coded.insert(extent.name);
    }
  }
  for (const std::string& warning : form_warnings(plan, coded)) {
    console.warn(warning);
  }
}

Result<void> check_retier_options(const RepackOptions& options) {
  for (const auto& [name, setting] :
       {std::pair<std::string_view, const Setting&>("--align", options.align),
        {"--compress", options.compress},
        {"--dtype", options.dtype},
        {"--disk-dir", options.disk_dir}}) {
    if (setting.source.starts_with('-')) {
      return std::unexpected(
          Error(ErrorCode::kUsage, fmt::format("{}: a pack can't be laid out otherwise", name))
              .with_hint("pack its source anew"));
    }
  }
  const auto is_asked_for = [](const Setting& setting) { return setting.source.starts_with('-'); };
  for (const auto& [name, is_given] :
       {std::pair<std::string_view, bool>("--verify", options.verify),
        {"--resume", options.resume},
        {"--no-resume", options.no_resume},
        {"--direct", is_asked_for(options.direct)},
        {"--reserve", is_asked_for(options.reserve)},
        {"--limit-rate", is_asked_for(options.limit_rate)}}) {
    if (is_given) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("{}: fitting a pack to another plan writes no weight", name))
              .with_hint(options.verify ? "without it; then: trash-panda verify PACK"
                                        : "leave it out"));
    }
  }
  return {};
}

Result<void> report_retiered(const RepackOptions& options, const PackTarget& target,
                             const format::Manifest& manifest, std::size_t moved_count,
                             Console& console) {
  if (console.json()) {
    Json tiers;
    for (const format::PackedExtent& extent : manifest.extents) {
      Json& tier = tiers[std::string(format::tier_name(extent.tier))];
      if (tier.is_null()) {
        tier = {{"extent_count", 0}, {"stored_bytes", 0}};
      }
      tier["extent_count"] = tier["extent_count"].get<std::uint64_t>() + 1;
      tier["stored_bytes"] = tier["stored_bytes"].get<std::uint64_t>() + extent.stored_bytes;
    }
    const Json document = {{"schema", "trash-panda/retier/1"},  {"pack", target.final.native()},
                           {"plan", options.plan.text},         {"dry_run", options.dry_run},
                           {"moved_extent_count", moved_count}, {"tiers", tiers}};
    return console.print(json_document(document));
  }
  return console.print(fmt::format("{}{}  {} of {} have another tier; no weight was moved\n",
                                   options.dry_run ? "would write " : "", printable(target.final),
                                   moved_count, counted(manifest.extents.size(), "extent")));
}

}  // namespace

Result<void> retier(const RepackOptions& options, const fs::path& pack, Console& console) {
  TP_RETURN_IF_ERROR(check_retier_options(options));
  RepackOptions in_place = options;
  if (!options.output.given()) {
    in_place.output = {.text = pack.native(), .source = "MODEL"};
    in_place.force = true;
  }
  TP_ASSIGN_OR_RETURN(
      const PackTarget target,
      choose_target(in_place, pack, options.dry_run ? TargetUse::kDryRun : TargetUse::kWrite,
                    console));
  std::unique_ptr<DirectoryLock> lock;
  std::error_code error;
  if (!options.dry_run && !fs::equivalent(pack, target.final, error)) {
    // What is replaced is locked already. Locked or not, all must be of one pack: manifest, shards.
    TP_ASSIGN_OR_RETURN(lock, lock_pack(fs::canonical(pack, error), console));
  }
  TP_ASSIGN_OR_RETURN(const format::Manifest before, format::read_manifest(pack));
  TP_ASSIGN_OR_RETURN(std::string plan_text,
                      read_small_file(options.plan.text, kPlanInputBytesMax));
  TP_ASSIGN_OR_RETURN(const plan::Plan plan, plan::parse_plan_toml(plan_text, options.plan.text));
  TP_ASSIGN_OR_RETURN(std::vector<format::Tier> tiers, tiers_by_plan(before, plan, options.plan));
  warn_of_kept_forms(before, plan, console);
  std::size_t moved_count = 0;
  for (std::size_t i = 0; i < tiers.size(); ++i) {
    moved_count += tiers[i] == before.extents[i].tier ? 0U : 1U;
  }
  if (options.dry_run) {
    format::Manifest after = before;
    for (std::size_t i = 0; i < tiers.size(); ++i) {
      after.extents[i].tier = tiers[i];
    }
    return report_retiered(options, target, after, moved_count, console);
  }
  TP_ASSIGN_OR_RETURN(
      const format::Manifest manifest,
      format::retier_pack(FileSystem::posix(), pack, target.staged,
                          {.tiers = std::move(tiers), .plan_toml = std::move(plan_text)},
                          console.logger()));
  TP_RETURN_IF_ERROR(publish_pack(target, console));
  return report_retiered(options, target, manifest, moved_count, console);
}

}  // namespace trash_panda::cli
