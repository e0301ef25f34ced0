#include "repack_report.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "json_text.h"
#include "model_input.h"
#include "progress_bar.h"
#include "table.h"

namespace trash_panda::cli {

namespace {

struct TierTotal {
  std::uint64_t extent_count = 0;
  std::uint64_t stored_bytes = 0;
};

std::map<format::Tier, TierTotal> tier_totals(const format::Manifest& manifest) {
  std::map<format::Tier, TierTotal> totals;
  for (const format::PackedExtent& extent : manifest.extents) {
    TierTotal& total = totals[extent.tier];
    ++total.extent_count;
    total.stored_bytes += extent.stored_bytes;
  }
  return totals;
}

std::uint64_t pack_bytes(const format::Manifest& manifest) {
  std::uint64_t bytes = 0;
  for (const format::PackedShard& shard : manifest.shards) {
    bytes += shard.size_bytes;
  }
  return bytes;
}

}  // namespace

std::string repack_text(const RepackReport& report, const Console& console) {
  const format::Manifest& manifest = *report.manifest;
  const std::uint64_t bytes = pack_bytes(manifest);
  std::string out = fmt::format("{}{}  {}  {} in {}", report.dry_run ? "would write " : "",
                                console.styled(Style::kBold, printable(report.target)),
                                format_bytes(bytes), counted(manifest.extents.size(), "extent"),
                                counted(manifest.shards.size(), "shard"));
  const double elapsed_s = std::chrono::duration<double>(report.elapsed).count();
  if (!report.dry_run) {
    out += fmt::format("  {:.1f} s, {}/s", elapsed_s,
                       format_bytes(static_cast<std::uint64_t>(static_cast<double>(bytes) /
                                                               std::max(elapsed_s, 1e-3))));
  }
  out += report.verified ? "  verified\n\n" : "\n\n";
  std::vector<std::vector<std::string>> rows = {{"tier", "extents", "stored"}};
  for (const auto& [tier, total] : tier_totals(manifest)) {
    rows.push_back({std::string(format::tier_name(tier)), format_count(total.extent_count),
                    format_bytes(total.stored_bytes)});
  }
  return out + format_table("lrr", rows);
}

std::string repack_json(const RepackReport& report) {
  const format::Manifest& manifest = *report.manifest;
  Json tiers;
  for (const auto& [tier, total] : tier_totals(manifest)) {
    tiers[std::string(format::tier_name(tier))] = {{"extent_count", total.extent_count},
                                                   {"stored_bytes", total.stored_bytes}};
  }
  Json shards = Json::array();
  for (const format::PackedShard& shard : manifest.shards) {
    shards.push_back({{"name", shard.name}, {"size_bytes", shard.size_bytes}});
  }
  const Json document = {
      {"schema", "trash-panda/repack/1"},
      {"pack", report.target.native()},
      {"source", report.input->model.checkpoint.path().native()},
      {"source_fingerprint", report.input->model.checkpoint.fingerprint()},
      {"plan", report.input->plan_file.empty() ? Json(nullptr) : Json(report.input->plan_file)},
      {"dry_run", report.dry_run},
      {"verified", report.verified},
      {"total_bytes", pack_bytes(manifest)},
      {"tiers", tiers},
      {"shards", shards},
      {"elapsed_s", std::chrono::duration<double>(report.elapsed).count()},
      {"warnings", report.input->warnings}};
  return json_document(document);
}

}  // namespace trash_panda::cli
