#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/pack_verify.h"

#include "commands.h"
#include "json_text.h"
#include "model_input.h"
#include "progress_bar.h"
#include "signals.h"

namespace trash_panda::cli {

namespace {

/// Mismatches that the one-line error names; the result on stdout lists all.
constexpr std::size_t kNamedMismatches = 3;

Error mismatch_error(const std::filesystem::path& pack, const format::VerifyReport& report) {
  const std::size_t named = std::min(kNamedMismatches, report.mismatches.size());
  const std::vector<std::string> first(
      report.mismatches.begin(), report.mismatches.begin() + static_cast<std::ptrdiff_t>(named));
  const std::size_t rest = report.mismatches.size() - named;
  return Error(ErrorCode::kMismatch,
               fmt::format("{} is damaged: {}{}", printable(pack), fmt::join(first, "; "),
                           rest == 0 ? std::string() : fmt::format(" and {} more", rest)))
      .with_hint("repack it from its source");
}

std::string verify_json(const std::filesystem::path& pack, const format::VerifyReport& report) {
  const Json document = {
      {"schema", "trash-panda/verify/1"},        {"pack", pack.native()},
      {"ok", report.mismatches.empty()},         {"extent_count", report.extent_count},
      {"verified_bytes", report.verified_bytes}, {"mismatches", report.mismatches}};
  return json_document(document);
}

std::string verify_text(const std::filesystem::path& pack, const format::VerifyReport& report) {
  std::string out;
  for (const std::string& mismatch : report.mismatches) {
    out += printable(std::string_view(mismatch)) + "\n";
  }
  if (report.mismatches.empty()) {
    out = fmt::format("{}: ok, {} in {} as they were written\n", printable(pack),
                      format_bytes(report.verified_bytes), counted(report.extent_count, "extent"));
  }
  return out;
}

}  // namespace

Result<void> run_verify(const VerifyOptions& options, Console& console) {
  const std::filesystem::path pack = options.pack.text;
  format::VerifyReport report;
  {
    const InterruptScope interrupts;
    ProgressBar progress(console, "verifying");
    TP_ASSIGN_OR_RETURN(
        report, format::verify_pack(pack, {.progress = progress.callback(), .stop = stop_flag()}));
  }
  TP_RETURN_IF_ERROR(
      console.print(console.json() ? verify_json(pack, report) : verify_text(pack, report)));
  if (!report.mismatches.empty()) {
    return std::unexpected(mismatch_error(pack, report));
  }
  return {};
}

}  // namespace trash_panda::cli
