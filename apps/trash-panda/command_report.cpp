#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"

#include "commands.h"
#include "output_file.h"
#include "run_history.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 3> kReportForms = {"summary", "perfetto", "html"};
/// Some million records; more than a person looks at.
constexpr std::uint64_t kHistoryBytesMax = 256 * kMiB;

Result<std::string> run_report_text(const ReportOptions& options, Console& console) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> form, choice_of(options.to, kReportForms));
  if (form.value_or(0) > 0 && console.json()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("--json prints the summary, --to {} another document",
                                             kReportForms.at(*form)))
            .with_hint("leave out one of them"));
  }
  TP_ASSIGN_OR_RETURN(const std::string text, read_small_file(options.run.text, kHistoryBytesMax));
  TP_ASSIGN_OR_RETURN(const RunHistory history, parse_run_history(text, options.run.text));
  if (history.passes.empty()) {
    return std::unexpected(
        Error(ErrorCode::kCorrupt, fmt::format("{} has no pass", printable(options.run.text)))
            .with_hint("TRASH_PANDA_LOG=FILE, set before loading, writes a log of the passes; one "
                       "is complete when the next begins, or the model is closed"));
  }
  if (form == 1) {
    return history_trace(history);
  }
  if (form == 2) {
    return history_page(history, options.run.text);
  }
  return console.json() ? history_json(history, options.run.text)
                        : history_summary(history, options.run.text);
}

}  // namespace

Result<void> run_report(const ReportOptions& options, Console& console) {
  const Overwrite overwrite = options.force ? Overwrite::kReplace : Overwrite::kRefuse;
  const bool has_file = options.output.given() && options.output.text != "-";
  if (has_file) {
    TP_RETURN_IF_ERROR(check_output_file(options.output.text, overwrite));
  }
  TP_ASSIGN_OR_RETURN(const std::string text, run_report_text(options, console));
  return has_file ? write_output_file(options.output.text, text, overwrite) : console.print(text);
}

}  // namespace trash_panda::cli
