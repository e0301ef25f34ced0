#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trash_panda/base/units.h"

#include "commands.h"
#include "output_file.h"
#include "run_history.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 2> kReportForms = {"summary", "perfetto"};
/// Some million records; more than a person looks at.
constexpr std::uint64_t kHistoryBytesMax = 256 * kMiB;

Result<std::string> run_report_text(const ReportOptions& options, Console& console) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> form, choice_of(options.to, kReportForms));
  const bool is_trace = form == 1;
  if (is_trace && console.json()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, "--json prints the summary, --to perfetto another document")
            .with_hint("leave out one of them"));
  }
  TP_ASSIGN_OR_RETURN(const std::string text, read_small_file(options.run.text, kHistoryBytesMax));
  TP_ASSIGN_OR_RETURN(const RunHistory history, parse_run_history(text, options.run.text));
  if (is_trace) {
    return history_trace(history);
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
