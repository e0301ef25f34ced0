#include "repack_report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_writer.h"

#include "json_text.h"
#include "model_input.h"
#include "progress_bar.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

std::map<format::Tier, std::uint64_t> extent_counts(const format::Manifest& manifest) {
  std::map<format::Tier, std::uint64_t> counts;
  for (const format::PackedExtent& extent : manifest.extents) {
    ++counts[extent.tier];
  }
  return counts;
}

/// Whether sizes are estimates: of codes that are still to be made.
bool is_estimate(const RepackReport& report) {
  return report.dry_run &&
         std::ranges::any_of(report.manifest->extents, [](const format::PackedExtent& extent) {
           return extent.codec != format::kCodecRaw;
         });
}

std::uint64_t converted_count(const RepackReport& report, bool is_exact) {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      report.input->layout.conversions,
      [&](const auto& conversion) { return conversion.second.is_exact == is_exact; }));
}

/// Which weights have another dtype than in the source.
std::string conversions_text(const RepackReport& report) {
  std::string text;
  if (const std::uint64_t count = converted_count(report, /*is_exact=*/true); count > 0) {
    text += fmt::format("\n{} of f32 as bf16, without loss\n", counted(count, "weight"));
  }
  if (const std::uint64_t count = converted_count(report, /*is_exact=*/false); count > 0) {
    text += fmt::format("\n{} rounded; unpack can't give what the checkpoint has\n",
                        counted(count, "weight"));
  }
  return text;
}

}  // namespace

std::string repack_text(const RepackReport& report, const Console& console) {
  const format::Manifest& manifest = *report.manifest;
  const format::PackSize size = format::pack_size(manifest);
  const std::uint64_t bytes = size.total_bytes;
  std::string out = fmt::format("{}{}  {}{}  {} in {}", report.dry_run ? "would write " : "",
                                console.styled(Style::kBold, printable(report.target)),
                                is_estimate(report) ? "about " : "", format_bytes(bytes),
                                counted(manifest.extents.size(), "extent"),
                                counted(manifest.shards.size(), "shard"));
  const double elapsed_s = std::chrono::duration<double>(report.elapsed).count();
  if (!report.dry_run) {
    out += fmt::format("  {:.1f} s, {}/s", elapsed_s,
                       format_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) /
                                                               std::max(elapsed_s, 1e-3))));
  }
  out += report.verified ? "  verified\n\n" : "\n\n";
  std::vector<std::vector<std::string>> rows = {{"tier", "extents", "stored"}};
  for (const auto& [tier, count] : extent_counts(manifest)) {
    rows.push_back({std::string(format::tier_name(tier)), format_count(count),
                    format_bytes(size.tier_bytes.at(tier))});
  }
  out += format_table("lrr", rows);
  out += conversions_text(report);
  if (report.dry_run) {
    out +=
        fmt::format("\n{} are free on its drive", format_bytes(report.drives.front().free_bytes));
    for (const DriveSpace& drive : std::span(report.drives).subspan(1)) {
      out += fmt::format(", {} on that of {}, where {} of it go", format_bytes(drive.free_bytes),
                         printable(drive.folder), format_bytes(drive.needed_bytes));
    }
    if (report.read_s) {
      out += fmt::format("; reading the checkpoint takes {} at the measured rate",
                         format_duration(std::chrono::seconds(
                             static_cast<std::int64_t>(std::ceil(*report.read_s)))));
    }
    out += '\n';
  }
  return out;
}

std::string repack_json(const RepackReport& report) {
  const format::Manifest& manifest = *report.manifest;
  const format::PackSize size = format::pack_size(manifest);
  Json tiers;
  for (const auto& [tier, count] : extent_counts(manifest)) {
    tiers[std::string(format::tier_name(tier))] = {{"extent_count", count},
                                                   {"stored_bytes", size.tier_bytes.at(tier)}};
  }
  Json shards = Json::array();
  for (const format::PackedShard& shard : manifest.shards) {
    shards.push_back({{"name", shard.name}, {"size_bytes", shard.size_bytes}});
  }
  Json document = {
      {"schema", "trash-panda/repack/1"},
      {"pack", report.target.native()},
      {"source", report.input->model.checkpoint.path().native()},
      {"source_fingerprint", report.input->model.checkpoint.fingerprint()},
      {"plan", report.input->plan_file.empty() ? Json(nullptr) : Json(report.input->plan_file)},
      {"dry_run", report.dry_run},
      {"verified", report.verified},
      {"total_bytes", size.total_bytes},
      {"tiers", tiers},
      {"shards", shards},
      {"narrowed_count", converted_count(report, /*is_exact=*/true)},
      {"rounded_count", converted_count(report, /*is_exact=*/false)},
      {"elapsed_s", std::chrono::duration<double>(report.elapsed).count()},
      {"warnings", report.input->warnings}};
  if (report.dry_run) {
    document["is_estimate"] = is_estimate(report);
    document["free_bytes"] = report.drives.front().free_bytes;
    document["drives"] = Json::array();
    for (const DriveSpace& drive : report.drives) {
      document["drives"].push_back({{"folder", drive.folder.native()},
                                    {"needed_bytes", drive.needed_bytes},
                                    {"free_bytes", drive.free_bytes}});
    }
    document["read_s"] = report.read_s ? Json(*report.read_s) : Json(nullptr);
  }
  return json_document(document);
}

}  // namespace trash_panda::cli
