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
  const bool is_unreadable = report.unreadable_count == report.mismatches.size();
  return Error(is_unreadable ? ErrorCode::kFailed : ErrorCode::kMismatch,
               fmt::format("{} {}: {}{}", printable(pack),
                           is_unreadable ? "can't be read" : "is damaged", fmt::join(first, "; "),
                           rest == 0 ? std::string() : fmt::format(" and {} more", rest)))
      .with_hint(is_unreadable
                     ? "see that it may be read, and look at the drive; it may well be whole"
                     : "repack it from its source");
}

std::string_view depth_name(const VerifyOptions& options) {
  return options.source.given() ? "source" : options.quick ? "quick" : "full";
}

std::string verify_json(const VerifyOptions& options, const format::VerifyReport& report) {
  const Json document = {
      {"schema", "trash-panda/verify/1"},    {"pack", options.pack.text},
      {"depth", depth_name(options)},        {"ok", report.mismatches.empty()},
      {"extent_count", report.extent_count}, {"verified_bytes", report.verified_bytes},
      {"mismatches", report.mismatches}};
  return json_document(document);
}

std::string verify_text(const VerifyOptions& options, const format::VerifyReport& report) {
  std::string out;
  for (const std::string& mismatch : report.mismatches) {
    out += printable(std::string_view(mismatch)) + "\n";
  }
  if (!out.empty()) {
    return out;
  }
  const std::string pack = printable(std::filesystem::path(options.pack.text));
  if (options.quick) {
    return fmt::format("{}: ok as far as --quick looks: manifest, plan, and {} of headers\n", pack,
                       format_bytes(report.verified_bytes));
  }
  const std::string read = fmt::format("{} in {}", format_bytes(report.verified_bytes),
                                       counted(report.extent_count, "extent"));
  return options.source.given() ? fmt::format("{}: ok, {} as in {}\n", pack, read,
                                              printable(std::filesystem::path(options.source.text)))
                                : fmt::format("{}: ok, {} as they were written\n", pack, read);
}

/// Reads what there is to compare and compares it.
Result<format::VerifyReport> look_at(const VerifyOptions& options, Console& console) {
  const std::filesystem::path pack = options.pack.text;
  const InterruptScope interrupts;
  if (!options.source.given()) {
    ProgressBar progress(console, "verifying");
    return format::verify_pack(
        pack, {.depth = options.quick ? format::VerifyDepth::kQuick : format::VerifyDepth::kFull,
               .progress = progress.callback(),
               .stop = stop_flag()});
  }
  // First, since a mistyped pack is told at once.
  TP_ASSIGN_OR_RETURN(const format::Manifest manifest, format::read_manifest(pack));
  TP_ASSIGN_OR_RETURN(const std::filesystem::path path, find_model(options.source));
  TP_ASSIGN_OR_RETURN(const LoadedModel model, load_model(path, {}, console));
  ProgressBar progress(console, "comparing");
  return format::compare_with_source(pack, model.checkpoint, model.weights,
                                     {.progress = progress.callback(), .stop = stop_flag()});
}

}  // namespace

Result<void> run_verify(const VerifyOptions& options, Console& console) {
  if (options.quick && options.source.given()) {
    return std::unexpected(Error(
        ErrorCode::kUsage, "--quick and --source exclude each other: a comparison reads all"));
  }
  const std::filesystem::path pack = options.pack.text;
  TP_ASSIGN_OR_RETURN(const format::VerifyReport report, look_at(options, console));
  TP_RETURN_IF_ERROR(
      console.print(console.json() ? verify_json(options, report) : verify_text(options, report)));
  if (!report.mismatches.empty()) {
    return std::unexpected(mismatch_error(pack, report));
  }
  return {};
}

}  // namespace trash_panda::cli
