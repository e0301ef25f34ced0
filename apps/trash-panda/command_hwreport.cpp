#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/file.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/hardware_json.h"
#include "trash_panda/runtime/probe.h"

#include "commands.h"
#include "environment.h"
#include "hardware_cache.h"
#include "hardware_report.h"
#include "measured_rates.h"
#include "model_input.h"
#include "output_file.h"
#include "progress_bar.h"
#include "redaction.h"
#include "signals.h"

namespace trash_panda::cli {

namespace {

constexpr std::uint64_t kReportBytesMax = 4 * kMiB;

Result<void> check_hwreport(const HwreportOptions& options, const Console& console) {
  const auto exclude = [](bool first, bool second, const char* message) -> Result<void> {
    if (first && second) {
      return std::unexpected(Error(ErrorCode::kUsage, message).with_hint("choose one"));
    }
    return {};
  };
  TP_RETURN_IF_ERROR(exclude(options.quick, options.full, "--quick and --full exclude each other"));
  TP_RETURN_IF_ERROR(exclude(options.quick || options.full, options.no_bench,
                             "--no-bench measures nothing, --quick and --full do"));
  TP_RETURN_IF_ERROR(
      exclude(options.redact, options.no_redact, "--redact and --no-redact exclude each other"));
  TP_RETURN_IF_ERROR(
      exclude(options.bug, console.json(), "--bug writes Markdown, --json a JSON document"));
  TP_RETURN_IF_ERROR(exclude(options.compare.given(), console.json() || options.bug,
                             "--compare writes a table, --json and --bug do not"));
  return check_output_setting(options.output,
                              options.force ? Overwrite::kReplace : Overwrite::kRefuse);
}

/// What to look at: the paths asked for, else this folder.
std::vector<std::filesystem::path> report_paths(const HwreportOptions& options) {
  if (!options.paths.empty()) {
    return {options.paths.begin(), options.paths.end()};
  }
  std::error_code error;
  const std::filesystem::path here = std::filesystem::current_path(error);
  return error ? std::vector<std::filesystem::path>() : std::vector{here};
}

/// Leaves the GPUs that --gpu names.
Result<void> select_gpus(const Setting& setting, plan::Hardware& hardware) {
  if (!setting.given() || setting.text == "all") {
    return {};
  }
  TP_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> index, count_of(setting));
  if (!index) {
    return {};
  }
  if (*index >= hardware.gpus.size()) {
    // No failure: the report says what there is.
    hardware.gpu_note = hardware.gpus.empty() ? hardware.gpu_note
                                              : fmt::format("there is no GPU {}: found {}", *index,
                                                            counted(hardware.gpus.size(), "GPU"));
    hardware.gpus.clear();
    return {};
  }
  hardware.gpus = {hardware.gpus[*index]};
  return {};
}

Result<void> measure(const HwreportOptions& options, const std::filesystem::path& cache,
                     plan::Hardware& hardware, Console& console) {
  TP_ASSIGN_OR_RETURN(const runtime::IoBackend io, io_backend());
  const InterruptScope interrupts;
  ProgressBar progress(console, "measuring");
  TP_RETURN_IF_ERROR(runtime::measure_hardware(
      {.effort = options.full ? runtime::ProbeEffort::kFull : runtime::ProbeEffort::kQuick,
       .io = io,
       .on_step =
           [&](std::string_view step) { progress.set_title(fmt::format("measuring {}", step)); },
       .stop = stop_flag()},
      hardware));
  if (const Result<void> saved = save_rates(cache, hardware, std::chrono::system_clock::now());
      !saved) {
    console.warn(fmt::format("the measurement is not kept: {}", saved.error().to_string()));
  }
  return {};
}

Result<plan::Hardware> look_at_machine(const HwreportOptions& options, Console& console) {
  for (const std::string& path : options.paths) {
    TP_RETURN_IF_ERROR(check_measured_path(path));
  }
  plan::Hardware hardware = runtime::probe_hardware();
  TP_RETURN_IF_ERROR(select_gpus(options.gpu, hardware));
  runtime::describe_hardware(report_paths(options), hardware);
  const std::filesystem::path cache = cache_folder();
  if (!options.no_bench) {
    TP_RETURN_IF_ERROR(measure(options, cache, hardware, console));
  } else if (const Result<void> applied =
                 apply_cached_rates(cache, hardware, std::chrono::system_clock::now());
             !applied) {
    console.note(fmt::format("no earlier measurement: {}", applied.error().to_string()));
  }
  return hardware;
}

}  // namespace

Result<void> run_hwreport(const HwreportOptions& options, Console& console) {
  TP_RETURN_IF_ERROR(check_hwreport(options, console));
  std::optional<plan::Hardware> other;
  if (options.compare.given()) {
    TP_ASSIGN_OR_RETURN(const std::string text,
                        read_small_file(options.compare.text, kReportBytesMax));
    TP_ASSIGN_OR_RETURN(other, plan::parse_hardware(text, options.compare.text));
  }
  TP_ASSIGN_OR_RETURN(plan::Hardware hardware, look_at_machine(options, console));
  if (!options.no_redact) {
    const Identity identity = find_identity(cache_folder());
    TP_ASSIGN_OR_RETURN(hardware, redact(hardware, identity));
    if (other) {
      TP_ASSIGN_OR_RETURN(other, redact(*other, identity));
    }
  }
  const auto now = std::chrono::system_clock::now();
  if (options.output.given()) {
    TP_RETURN_IF_ERROR(write_output_file(
        options.output.text,
        options.bug ? hardware_bug_report(hardware, now) : plan::write_hardware(hardware),
        options.force ? Overwrite::kReplace : Overwrite::kRefuse));
  }
  if (other) {
    return console.print(hardware_comparison(*other, hardware));
  }
  if (console.json()) {
    return console.print(plan::write_hardware(hardware));
  }
  return console.print(options.bug ? hardware_bug_report(hardware, now)
                                   : hardware_text(hardware, now, console));
}

}  // namespace trash_panda::cli
