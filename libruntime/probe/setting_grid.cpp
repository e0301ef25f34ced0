#include "setting_grid.h"

#include <algorithm>
#include <utility>

#include "median.h"

namespace trash_panda::runtime {

namespace {

/// Requests in flight that a drive needs longer for are no setting to stream with, and would keep
/// Ctrl-C waiting.
constexpr double kInFlightSecondsMax = 0.5;
/// A faster setting has to be this much faster to be worth more memory in flight.
constexpr double kWorthMoreMemory = 1.03;

double median_rate(const MeasuredSetting& measured) {
  return median(measured.rates);
}

}  // namespace

Result<std::vector<MeasuredSetting>> measure_settings(
    const EffortPlan& effort, const SettingLimits& limits,
    const std::function<Result<double>(const ReadSetting&)>& read_rate) {
  std::vector<MeasuredSetting> settings;
  double best_rate = 0;
  for (std::uint32_t round = 0; round < effort.grid_rounds; ++round) {
    for (const std::uint64_t request_bytes : effort.request_bytes) {
      for (const std::uint32_t depth : effort.depths) {
        const ReadSetting setting{.depth = depth, .request_bytes = request_bytes};
        const auto in_flight = static_cast<double>(setting.in_flight_bytes());
        if (request_bytes > limits.request_bytes_max ||
            setting.in_flight_bytes() > limits.in_flight_bytes_max ||
            (!settings.empty() && in_flight > best_rate * kInFlightSecondsMax)) {
          continue;
        }
        TP_ASSIGN_OR_RETURN(const double rate, read_rate(setting));
        best_rate = std::max(best_rate, rate);
        auto found = std::ranges::find(settings, setting, &MeasuredSetting::setting);
        if (found == settings.end()) {
          found = settings.insert(found, {.setting = setting, .rates = {}});
        }
        found->rates.push_back(rate);
      }
    }
  }
  return settings;
}

std::vector<MeasuredSetting>::iterator fastest_setting(std::vector<MeasuredSetting>& settings) {
  return std::ranges::max_element(settings, {}, median_rate);
}

std::vector<MeasuredSetting>::iterator choose_setting(std::vector<MeasuredSetting>& settings) {
  const double best = median_rate(*fastest_setting(settings));
  return std::ranges::min_element(settings, {}, [&](const MeasuredSetting& measured) {
    const bool is_fast = median_rate(measured) * kWorthMoreMemory >= best;
    return std::pair(!is_fast, measured.setting.in_flight_bytes());
  });
}

}  // namespace trash_panda::runtime
