#include "probe/setting_grid.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

namespace trash_panda::runtime {
namespace {

constexpr std::array<std::uint32_t, 2> kGridDepths = {1, 8};
constexpr std::array<std::uint64_t, 2> kGridRequests = {1 * kMiB, 4 * kMiB};

EffortPlan grid_effort() {
  EffortPlan effort = effort_plan(ProbeEffort::kQuick);
  effort.depths = kGridDepths;
  effort.request_bytes = kGridRequests;
  effort.grid_rounds = 2;
  return effort;
}

/// Settings in the order in which they are tried, on a drive of some speed.
Result<std::vector<ReadSetting>> tried(const SettingLimits& limits, double bytes_per_s) {
  std::vector<ReadSetting> order;
  TP_RETURN_IF_ERROR(
      measure_settings(grid_effort(), limits, [&](const ReadSetting& setting) -> Result<double> {
        order.push_back(setting);
        return bytes_per_s;
      }));
  return order;
}

TEST(MeasureSettings, TakesTurnsRoundByRound) {
  const std::vector<ReadSetting> round = {
      {1, 1 * kMiB}, {8, 1 * kMiB}, {1, 4 * kMiB}, {8, 4 * kMiB}};
  std::vector<ReadSetting> expected = round;
  expected.insert(expected.end(), round.begin(), round.end());
  EXPECT_EQ(tried({.in_flight_bytes_max = 32 * kMiB}, 1e10), expected);
}

TEST(MeasureSettings, KeepsToItsLimits) {
  const std::vector<ReadSetting> little = {{1, 1 * kMiB}, {8, 1 * kMiB}, {1, 4 * kMiB},
                                           {1, 1 * kMiB}, {8, 1 * kMiB}, {1, 4 * kMiB}};
  EXPECT_EQ(tried({.in_flight_bytes_max = 32 * kMiB - 1}, 1e10), little);
  const std::vector<ReadSetting> small = {
      {1, 1 * kMiB}, {8, 1 * kMiB}, {1, 1 * kMiB}, {8, 1 * kMiB}};
  EXPECT_EQ(tried({.in_flight_bytes_max = 32 * kMiB, .request_bytes_max = 4 * kMiB - 1}, 1e10),
            small);
  EXPECT_EQ(tried({.in_flight_bytes_max = kMiB - 1}, 1e10), std::vector<ReadSetting>());
}

TEST(MeasureSettings, LeavesOutWhatASlowDriveTakesTooLongFor) {
  // Half a second of 10 MiB/s: 5 MiB in flight.
  const std::vector<ReadSetting> expected = {
      {1, 1 * kMiB}, {1, 4 * kMiB}, {1, 1 * kMiB}, {1, 4 * kMiB}};
  EXPECT_EQ(tried({.in_flight_bytes_max = 32 * kMiB}, 10.0 * kMiB), expected);
}

TEST(MeasureSettings, PassesOnTheFirstError) {
  int calls = 0;
  const auto measured = measure_settings(
      grid_effort(), {.in_flight_bytes_max = 32 * kMiB}, [&](const ReadSetting&) -> Result<double> {
        ++calls;
        return std::unexpected(Error(ErrorCode::kInterrupted, "stopped"));
      });
  ASSERT_FALSE(measured);
  EXPECT_EQ(measured.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(calls, 1);
}

TEST(ChooseSetting, TakesLessMemoryForTheSameSpeed) {
  std::vector<MeasuredSetting> settings = {{.setting = {8, 4 * kMiB}, .rates = {100, 103, 900}},
                                           {.setting = {1, 4 * kMiB}, .rates = {100}},
                                           {.setting = {1, 1 * kMiB}, .rates = {99}}};
  EXPECT_EQ(choose_setting(settings)->setting, ReadSetting(1, 4 * kMiB))
      << "3 % below the median of the fastest, no more";
  EXPECT_EQ(fastest_setting(settings)->setting, ReadSetting(8, 4 * kMiB));
  settings[0].rates = {104};
  EXPECT_EQ(choose_setting(settings)->setting, ReadSetting(8, 4 * kMiB));
}

}  // namespace
}  // namespace trash_panda::runtime
