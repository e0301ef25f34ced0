#include "measured_rates.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/runtime/probe.h"

#include "environment.h"
#include "hardware_cache.h"
#include "progress_bar.h"
#include "signals.h"

namespace trash_panda::cli {

namespace {

constexpr std::array<std::string_view, 3> kProbeWords = {"auto", "never", "force"};
constexpr std::uint64_t kWorthMeasuringBytes = 256 * kMiB;
/// A disk that can't be measured is found out at once.
constexpr std::chrono::duration<double> kWorthTelling{0.5};

bool is_measured(const plan::Hardware& hardware) {
  return !hardware.measured_at.empty() &&
         std::ranges::all_of(hardware.disks, [](const plan::DiskInfo& disk) {
           return disk.read_bytes_per_s.has_value();
         });
}

Result<void> measure_for_plan(ProbeMode mode, plan::Hardware& hardware, Console& console) {
  TP_ASSIGN_OR_RETURN(const runtime::IoBackend io, io_backend());
  const auto start = std::chrono::steady_clock::now();
  {
    const InterruptScope interrupts;
    ProgressBar progress(console, "measuring");
    TP_RETURN_IF_ERROR(runtime::measure_hardware(
        {.effort = mode == ProbeMode::kForce ? runtime::ProbeEffort::kQuick
                                             : runtime::ProbeEffort::kBrief,
         .may_write = mode == ProbeMode::kForce,
         .io = io,
         .on_step =
             [&](std::string_view step) { progress.set_title(fmt::format("measuring {}", step)); },
         .stop = stop_flag()},
        hardware));
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const Result<void> saved = save_rates(cache_folder(), hardware, std::chrono::system_clock::now());
  if (elapsed > kWorthTelling) {
    console.note(fmt::format("measured this machine in {:.1f} s{}", elapsed.count(),
                             saved ? ", kept for 30 days; --probe never plans without" : ""));
  }
  if (!saved) {
    console.warn(fmt::format("the measurement is not kept: {}", saved.error().to_string()));
  }
  return {};
}

}  // namespace

Result<ProbeMode> probe_mode_of(const Setting& setting) {
  TP_ASSIGN_OR_RETURN(const std::optional<std::size_t> index, choice_of(setting, kProbeWords));
  constexpr std::array kModes = {ProbeMode::kAuto, ProbeMode::kNever, ProbeMode::kForce};
  return kModes.at(index.value_or(0));
}

Result<void> check_measured_path(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return std::unexpected(
        Error(ErrorCode::kMissing, fmt::format("--path: {} does not exist", printable(path))));
  }
  return {};
}

Result<void> add_measured_rates(const MeasuredModel& model, ProbeMode mode,
                                plan::Hardware& hardware, Console& console) {
  runtime::describe_hardware({model.path}, hardware);
  if (mode != ProbeMode::kForce) {
    const Result<void> applied =
        apply_cached_rates(cache_folder(), hardware, std::chrono::system_clock::now());
    if (!applied) {
      console.note(fmt::format("no earlier measurement: {}", applied.error().to_string()));
    }
  }
  const bool is_worth_it = model.size_bytes >= kWorthMeasuringBytes;
  if (mode == ProbeMode::kForce ||
      (mode == ProbeMode::kAuto && is_worth_it && !is_measured(hardware))) {
    return measure_for_plan(mode, hardware, console);
  }
  return {};
}

}  // namespace trash_panda::cli
