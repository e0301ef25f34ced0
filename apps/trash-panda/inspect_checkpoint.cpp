#include "inspect_checkpoint.h"

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"

#include "model_input.h"
#include "progress_bar.h"

namespace trash_panda::cli {

Result<InspectSummary> inspect_checkpoint(const std::filesystem::path& path,
                                          const std::vector<std::string>& groups,
                                          ScaleCheck scale_check, const TensorListing& listing,
                                          Console& console) {
  TP_ASSIGN_OR_RETURN(const LoadedModel model, load_model(path, groups, console));
  InspectSummary summary = summarize_checkpoint(model, listing);
  if (summary.scales.is_checked) {
    return summary;
  }
  if (scale_check == ScaleCheck::kWhereFew) {
    summary.warnings.push_back(
        fmt::format("the values of {} scales ({}) were not looked at; --check-scales does that",
                    format_count(summary.scales.count), format_bytes(summary.scales.bytes)));
    return summary;
  }
  const ProgressBar progress(
      console,
      fmt::format("reading {} scales of {}", format_count(summary.scales.count), printable(path)));
  TP_RETURN_IF_ERROR(check_scales(model, summary));
  return summary;
}

}  // namespace trash_panda::cli
