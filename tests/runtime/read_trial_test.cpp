#include "probe/read_trial.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "format/support/checkpoint_builder.h"

namespace trash_panda::runtime {
namespace {

using trash_panda::testing::must;
using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

constexpr std::array<std::uint32_t, 2> kTestDepths = {1, 4};

TEST(ReadArea, GoesRoundInWholeRequests) {
  ReadArea area(10 * kMiB, 3 * kMiB + 5);
  EXPECT_EQ(area.take(kMiB), 3 * kMiB) << "rounded down to the request";
  EXPECT_EQ(area.take(4 * kMiB), 4 * kMiB);
  EXPECT_EQ(area.take(4 * kMiB), 0U) << "[8, 12) would pass the end";
  EXPECT_EQ(area.take(kMiB), 4 * kMiB) << "goes on where the last ended";
  EXPECT_EQ(area.take(10 * kMiB), 0U);
}

class ReadTrialsTest : public ::testing::Test {
 protected:
  ReadTrialsTest() { write_text(folder_ / "data", std::string(3 * kMiB, 'x')); }

  TempDir folder_;
  ReadTrials trials_ = must(ReadTrials::create(IoBackend::kAuto, 4, 4 * kMiB));
};

TEST_F(ReadTrialsTest, GivesARateForEachSetting) {
  for (const ReadMode mode : {ReadMode::kDirect, ReadMode::kBuffered}) {
    const File file = must(File::open(folder_ / "data", mode));
    ReadArea area(file.size_bytes(), 0);
    for (const std::uint32_t depth : kTestDepths) {
      const auto rate = trials_.read_rate(file, area, {.depth = depth, .request_bytes = kMiB},
                                          std::chrono::milliseconds(5), nullptr);
      ASSERT_TRUE(rate) << rate.error().to_string();
      EXPECT_GT(*rate, 0);
    }
  }
}

TEST_F(ReadTrialsTest, ReadsOncePerPlaceOfTheQueueAtLeast) {
  const File file = must(File::open(folder_ / "data"));
  ReadArea area(file.size_bytes(), 0);
  ASSERT_TRUE(trials_.read_rate(file, area, {.depth = 1, .request_bytes = kMiB},
                                std::chrono::milliseconds(0), nullptr));
  EXPECT_EQ(area.take(kMiB), kMiB);
}

TEST_F(ReadTrialsTest, StopsAtOnce) {
  const File file = must(File::open(folder_ / "data"));
  ReadArea area(file.size_bytes(), 0);
  const std::atomic<bool> stop = true;
  const auto rate = trials_.read_rate(file, area, {.depth = 1, .request_bytes = kMiB},
                                      std::chrono::hours(1), &stop);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(read_latencies_ns(file, kMiB, std::chrono::hours(1), &stop).error().code(),
            ErrorCode::kInterrupted);
}

TEST_F(ReadTrialsTest, PassesOnThatAReadFailed) {
  const File file = must(File::open(folder_ / "data"));
  ReadArea area(2 * file.size_bytes(), file.size_bytes());  // Past the end of the file.
  const auto rate = trials_.read_rate(file, area, {.depth = 4, .request_bytes = kMiB},
                                      std::chrono::hours(1), nullptr);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), ErrorCode::kCorrupt);
}

TEST_F(ReadTrialsTest, LatenciesAreSorted) {
  const File file = must(File::open(folder_ / "data", ReadMode::kDirect));
  const std::vector<std::uint64_t> latencies_ns =
      must(read_latencies_ns(file, file.size_bytes(), std::chrono::milliseconds(5), nullptr));
  EXPECT_FALSE(latencies_ns.empty());
  EXPECT_GT(latencies_ns.front(), 0U);
  EXPECT_TRUE(std::ranges::is_sorted(latencies_ns));
}

}  // namespace
}  // namespace trash_panda::runtime
