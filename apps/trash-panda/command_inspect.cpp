#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fnmatch.h>

#include "trash_panda/base/file.h"
#include "trash_panda/format/pipeline.h"

#include "commands.h"
#include "inspect_checkpoint.h"
#include "inspect_pipeline.h"
#include "inspect_report.h"
#include "inspect_summary.h"
#include "model_input.h"
#include "pack_folder.h"

namespace trash_panda::cli {

namespace {

constexpr std::uint64_t kTopCount = 5;

/// Indexes of the tensors that are listed: all, those that match, or the largest.
std::vector<std::size_t> listed_tensors(const std::vector<InspectedTensor>& tensors,
                                        const InspectOptions& options, std::uint64_t top_count) {
  std::vector<std::size_t> indexes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!options.match.given() ||
        ::fnmatch(options.match.text.c_str(), tensors[i].name.c_str(), 0) == 0) {
      indexes.push_back(i);
    }
  }
  const bool all = options.tensors || (options.match.given() && !options.top.given());
  if (!all) {
    std::ranges::stable_sort(indexes, std::greater<>(),
                             [&](std::size_t i) { return tensors[i].size_bytes; });
    indexes.resize(std::min<std::size_t>(indexes.size(), top_count));
  }
  return indexes;
}

Result<InspectSummary> summarize(const InspectOptions& options, Console& console) {
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
    return summarize_pack(path, manifest);
  }
  const ScaleCheck scale_check = options.check_scales ? ScaleCheck::kAll : ScaleCheck::kWhereFew;
  return format::is_pipeline(path)
             ? inspect_pipeline(path, options.model.text, scale_check, console)
             : inspect_checkpoint(path, options.groups, scale_check, console);
}

}  // namespace

Result<void> run_inspect(const InspectOptions& options, Console& console) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> top, count_of(options.top));
  TP_ASSIGN_OR_RETURN(const InspectSummary summary, summarize(options, console));
  const std::vector<std::size_t> listed =
      listed_tensors(summary.tensors, options, top.value_or(kTopCount));
  if (options.match.given() && listed.empty() && top.value_or(kTopCount) != 0) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("--match '{}' matches no tensor of {}",
                                             printable(std::string_view(options.match.text)),
                                             printable(std::string_view(options.model.text))))
            .with_hint("--tensors lists all names"));
  }
  if (console.json()) {
    return console.print(inspect_json(summary, listed));
  }
  TP_RETURN_IF_ERROR(console.print(inspect_text(summary, options.model.text, listed, console)));
  for (const std::string& warning : summary.warnings) {
    console.warn(warning);
  }
  return {};
}

}  // namespace trash_panda::cli
