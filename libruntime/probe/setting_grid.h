#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "trash_panda/base/error.h"

#include "probe_effort.h"
#include "read_trial.h"

namespace trash_panda::runtime {

struct MeasuredSetting {
  ReadSetting setting;
  std::vector<double> rates;  ///< Bytes per second, one a round.
};

/// Which settings of an effort are tried.
struct SettingLimits {
  std::uint64_t in_flight_bytes_max = 0;
  std::uint64_t request_bytes_max = UINT64_MAX;
};

/// Measures each setting of `effort`, interleaved, less those that keep a slow drive busy for too
/// long. None where the limits allow none.
///
/// @param read_rate  Reads in a setting; bytes per second.
/// @return The first error of `read_rate`, else at least one rate for each setting.
Result<std::vector<MeasuredSetting>> measure_settings(
    const EffortPlan& effort, const SettingLimits& limits,
    const std::function<Result<double>(const ReadSetting&)>& read_rate);

/// The fastest of at least one.
[[nodiscard]] std::vector<MeasuredSetting>::iterator fastest_setting(
    std::vector<MeasuredSetting>& settings);
/// What a plan streams with, of at least one: among the fastest the one with least memory in
/// flight.
[[nodiscard]] std::vector<MeasuredSetting>::iterator choose_setting(
    std::vector<MeasuredSetting>& settings);

}  // namespace trash_panda::runtime
