#include "progress_bar.h"

#include <chrono>

#include "cli_test.h"

namespace trash_panda::testing {
namespace {

using cli::format_duration;
using cli::progress_text;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(FormatDuration, ChoosesItsUnit) {
  EXPECT_EQ(format_duration(seconds(0)), "0 s");
  EXPECT_EQ(format_duration(seconds(59)), "59 s");
  EXPECT_EQ(format_duration(seconds(60)), "1 min 00 s");
  EXPECT_EQ(format_duration(seconds(3599)), "59 min 59 s");
  EXPECT_EQ(format_duration(seconds(3600)), "1 h 00 min");
  EXPECT_EQ(format_duration(seconds(100'000)), "27 h 46 min");
}

TEST(ProgressText, TellsRateAndTimeLeft) {
  EXPECT_EQ(progress_text({.title = "repacking",
                           .done_bytes = 41'000'000'000,
                           .total_bytes = 90'900'000'000,
                           .bytes_per_s = 1.23e9,
                           .elapsed = seconds(33)}),
            "repacking  45 %  41.0 GB of 90.9 GB  1.23 GB/s  41 s left");
}

TEST(ProgressText, NeverShowsHundredPercentBeforeTheEnd) {
  const std::string text = progress_text(
      {.title = "t", .done_bytes = 999, .total_bytes = 1000, .bytes_per_s = 1e6, .elapsed = {}});
  EXPECT_THAT(text, ::testing::HasSubstr("99 %"));
  EXPECT_THAT(progress_text({.title = "t",
                             .done_bytes = 1000,
                             .total_bytes = 1000,
                             .bytes_per_s = 1e6,
                             .elapsed = {}}),
              ::testing::HasSubstr("100 %"));
}

TEST(ProgressText, SaysThatNothingMoves) {
  EXPECT_EQ(progress_text({.title = "verifying",
                           .done_bytes = 1000,
                           .total_bytes = 2000,
                           .bytes_per_s = 0,
                           .elapsed = seconds(9)}),
            "verifying  50 %  1.00 kB of 2.00 kB  waiting");
}

TEST(ProgressText, WithoutATotalCountsSeconds) {
  EXPECT_EQ(progress_text({.title = "reading headers of m",
                           .done_bytes = 0,
                           .total_bytes = 0,
                           .bytes_per_s = 0,
                           .elapsed = milliseconds(3900)}),
            "reading headers of m  3 s");
}

TEST(ProgressJson, IsOneObject) {
  const auto line = nlohmann::json::parse(cli::progress_json({.title = "repacking",
                                                              .done_bytes = 1'000'000'000,
                                                              .total_bytes = 3'000'000'000,
                                                              .bytes_per_s = 1e9,
                                                              .elapsed = seconds(1)}));
  EXPECT_EQ(line["type"], "progress");
  EXPECT_EQ(line["operation"], "repacking");
  EXPECT_EQ(line["done_bytes"], 1'000'000'000);
  EXPECT_EQ(line["total_bytes"], 3'000'000'000);
  EXPECT_EQ(line["left_s"], 2);
}

}  // namespace
}  // namespace trash_panda::testing
