#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/pipeline.h"

#include "commands.h"
#include "inspect_checkpoint.h"
#include "inspect_listing.h"
#include "inspect_pipeline.h"
#include "inspect_report.h"
#include "inspect_summary.h"
#include "model_input.h"
#include "pack_folder.h"

namespace trash_panda::cli {

namespace {

constexpr std::uint64_t kTopCount = 5;

/// All tensors, those that match, or the largest.
TensorListing listing_of(const InspectOptions& options, std::uint64_t top_count) {
  const bool all = options.tensors || (options.match.given() && !options.top.given());
  return {.match = options.match.given() ? std::optional(options.match.text) : std::nullopt,
          .largest = all ? std::nullopt : std::optional(top_count)};
}

Result<InspectSummary> summarize(const InspectOptions& options, const TensorListing& listing,
                                 Console& console) {
  TP_ASSIGN_OR_RETURN(const std::filesystem::path path, find_model(options.model));
  const bool packed = is_pack(path);
  if (!options.groups.empty() && (packed || format::is_pipeline(path))) {
    return std::unexpected(
        Error(ErrorCode::kUsage, packed ? "--group: the blocks of a pack are fixed"
                                        : "--group is of one component of a pipeline: name that"));
  }
  if (packed && options.check_scales) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "--check-scales is of checkpoints, not of packs"));
  }
  if (packed) {
    TP_ASSIGN_OR_RETURN(const format::Manifest manifest, format::read_manifest(path));
    return summarize_pack(path, manifest, listing);
  }
  const ScaleCheck scale_check = options.check_scales ? ScaleCheck::kAll : ScaleCheck::kWhereFew;
  return format::is_pipeline(path)
             ? inspect_pipeline(path, options.model.text, scale_check, listing, console)
             : inspect_checkpoint(path, options.groups, scale_check, listing, console);
}

}  // namespace

Result<void> run_inspect(const InspectOptions& options, Console& console) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> top, count_of(options.top));
  const TensorListing listing = listing_of(options, top.value_or(kTopCount));
  TP_ASSIGN_OR_RETURN(const InspectSummary summary, summarize(options, listing, console));
  if (options.match.given() && summary.tensors.empty() && top.value_or(kTopCount) != 0) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("--match '{}' matches no tensor of {}",
                                             printable(std::string_view(options.match.text)),
                                             printable(std::string_view(options.model.text))))
            .with_hint("--tensors lists all names"));
  }
  if (console.json()) {
    return console.print(inspect_json(summary));
  }
  TP_RETURN_IF_ERROR(console.print(inspect_text(summary, options.model.text, console)));
  for (const std::string& warning : summary.warnings) {
    console.warn(warning);
  }
  return {};
}

}  // namespace trash_panda::cli
