#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "trash_panda/format/manifest.h"
#include "trash_panda/runtime/bench.h"
#include "trash_panda/runtime/probe.h"

#include "bench_report.h"
#include "commands.h"
#include "environment.h"
#include "measured_rates.h"
#include "output_file.h"
#include "progress_bar.h"
#include "signals.h"

namespace trash_panda::cli {

namespace {

constexpr std::uint64_t kRounds = 5;
/// Hours, and figures that nobody waits for.
constexpr std::uint64_t kRoundsMax = 1000;
constexpr std::string_view kStreamWord = kBenchWords.back();

/// By index into kBenchWords.
using BenchChoice = std::array<bool, kBenchWords.size()>;

Result<BenchChoice> choose_what(const BenchOptions& options) {
  BenchChoice choice = {};
  if (options.what.empty()) {
    choice.fill(true);
    choice.back() = options.pack.given();
    return choice;
  }
  for (const std::string& list : options.what) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      const Setting word = {.text = list.substr(begin, end - begin), .source = "--what"};
      TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index, choice_of(word, kBenchWords));
      choice.at(*index) = true;
      begin = end + 1;
    }
  }
  if (choice.back() != options.pack.given()) {
    return std::unexpected(
        choice.back()
            ? Error(ErrorCode::kUsage, fmt::format("--what {} needs a PACK", kStreamWord))
                  .with_hint("trash-panda repack makes one of a model")
            : Error(ErrorCode::kUsage, fmt::format("a PACK is only for --what {}", kStreamWord))
                  .with_hint("--path says which drive is measured"));
  }
  return choice;
}

Result<std::uint64_t> count_rounds(const Setting& runs) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> count, count_of(runs));
  if (count && (*count == 0 || *count > kRoundsMax)) {
    return std::unexpected(Error(ErrorCode::kUsage, fmt::format("{}: {} is not between 1 and {}",
                                                                runs.source, *count, kRoundsMax)));
  }
  return count.value_or(kRounds);
}

Result<void> measure_choice(const BenchChoice& choice, const runtime::BenchOptions& options,
                            BenchDocument& document) {
  const plan::Hardware hardware = runtime::probe_hardware();
  runtime::BenchReport& report = document.report;
  using Parts =
      Result<void> (*)(const plan::Hardware&, const runtime::BenchOptions&, runtime::BenchReport&);
  // As kBenchWords has them, less the first and the last, which want to know where.
  constexpr std::array<Parts, 4> kParts = {runtime::bench_h2d, runtime::bench_ram,
                                           runtime::bench_expand, runtime::bench_decode};
  static_assert(kParts.size() + 2 == kBenchWords.size());
  if (choice.front()) {
    TP_RETURN_IF_ERROR(runtime::bench_disk(document.path, hardware, options, report));
  }
  for (std::size_t part = 0; part < kParts.size(); ++part) {
    if (choice.at(part + 1)) {
      TP_RETURN_IF_ERROR(kParts.at(part)(hardware, options, report));
    }
  }
  if (choice.back()) {
    TP_ASSIGN_OR_RETURN(document.stream,
                        runtime::bench_stream(document.pack, hardware, options, report));
  }
  return {};
}

}  // namespace

Result<void> run_bench(const BenchOptions& options, Console& console) {
  const Overwrite overwrite = options.force ? Overwrite::kReplace : Overwrite::kRefuse;
  TP_ASSIGN_OR_RETURN(const BenchChoice choice, choose_what(options));
  TP_ASSIGN_OR_RETURN(const std::uint64_t round_count, count_rounds(options.runs));
  TP_RETURN_IF_ERROR(check_output_setting(options.export_json, overwrite));
  BenchDocument document = {.round_count = round_count,
                            .path = options.path.given() ? options.path.text : ".",
                            .pack = options.pack.text,
                            .report = {},
                            .stream = {}};
  TP_RETURN_IF_ERROR(check_measured_path(document.path));
  if (options.pack.given()) {
    // First, since a mistyped pack is told at once.
    TP_RETURN_IF_ERROR(format::read_manifest(document.pack));
  }
  TP_ASSIGN_OR_RETURN(const runtime::IoBackend io, io_backend());
  {
    const InterruptScope interrupts;
    ProgressBar progress(console, "measuring");
    TP_RETURN_IF_ERROR(measure_choice(
        choice,
        {.round_count = static_cast<std::uint32_t>(round_count),
         .io = io,
         .on_step =
             [&](std::string_view step) { progress.set_title(fmt::format("measuring {}", step)); },
         .stop = stop_flag(),
         .log = console.logger()},
        document));
  }
  const std::string json = bench_json(document);
  if (options.export_json.given()) {
    TP_RETURN_IF_ERROR(write_output_file(options.export_json.text, json, overwrite));
  }
  return console.print(console.json() ? json : bench_text(document));
}

}  // namespace trash_panda::cli
