#include "probe/plain_read.h"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "format/support/checkpoint_builder.h"

namespace trash_panda::runtime {
namespace {

using trash_panda::testing::must;
using trash_panda::testing::TempDir;
using trash_panda::testing::write_text;

class PlainReadTest : public ::testing::Test {
 protected:
  PlainReadTest() { write_text(folder_ / "data", std::string(3 * kMiB, 'x')); }

  TempDir folder_;
};

TEST_F(PlainReadTest, ReadsEachByteOfEachRangeOnce) {
  for (const ReadMode mode : {ReadMode::kDirect, ReadMode::kBuffered}) {
    const File file = must(File::open(folder_ / "data", mode));
    const std::vector<PlainRange> ranges = {
        {.file = &file, .offset_bytes = 0, .size_bytes = kMiB + 64 * kKiB},
        {.file = &file, .offset_bytes = 2 * kMiB, .size_bytes = kMiB},
        {.file = &file, .offset_bytes = 0, .size_bytes = 0}};
    for (const std::uint32_t depth : {1U, 4U, 16U}) {
      const auto read = read_plainly(ranges, {.depth = depth, .request_bytes = 512 * kKiB});
      ASSERT_TRUE(read) << read.error().to_string();
      EXPECT_EQ(read->read_bytes, 2 * kMiB + 64 * kKiB);
      EXPECT_GT(read->seconds, 0);
    }
  }
}

TEST_F(PlainReadTest, StopsAtOnce) {
  const File file = must(File::open(folder_ / "data"));
  const PlainRange whole = {.file = &file, .offset_bytes = 0, .size_bytes = 3 * kMiB};
  const ReadSetting setting = {.depth = 2, .request_bytes = kMiB};
  const std::atomic<bool> stop = true;
  const auto read = read_plainly(std::span(&whole, 1), setting, 0, &stop);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kInterrupted);
  ReadArea area(file.size_bytes(), 0);
  const AlignedBuffer memory = must(AlignedBuffer::create(2 * kMiB));
  const auto rate =
      plain_read_rate(file, area, setting, memory, std::chrono::milliseconds(1), &stop);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(area.take(kMiB), 0U) << "nothing was read";
}

TEST_F(PlainReadTest, PassesOnThatAReadFailed) {
  const File file = must(File::open(folder_ / "data"));
  const PlainRange past = {.file = &file, .offset_bytes = 2 * kMiB, .size_bytes = 2 * kMiB};
  const ReadSetting setting = {.depth = 2, .request_bytes = kMiB};
  const auto read = read_plainly(std::span(&past, 1), setting);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  ReadArea area(2 * file.size_bytes(), file.size_bytes());
  const AlignedBuffer memory = must(AlignedBuffer::create(2 * kMiB));
  const auto rate =
      plain_read_rate(file, area, setting, memory, std::chrono::milliseconds(1), nullptr);
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code(), ErrorCode::kCorrupt);
}

TEST_F(PlainReadTest, RateTakesUpWhereTheLastEnded) {
  const File file = must(File::open(folder_ / "data"));
  ReadArea area(file.size_bytes(), 0);
  const AlignedBuffer memory = must(AlignedBuffer::create(kMiB));
  const ReadSetting setting = {.depth = 1, .request_bytes = kMiB};
  EXPECT_GT(
      must(plain_read_rate(file, area, setting, memory, std::chrono::nanoseconds(0), nullptr)), 0);
  EXPECT_EQ(area.take(kMiB), kMiB) << "one request was read";
  EXPECT_EQ(std::memcmp(memory.data(), std::string(kMiB, 'x').data(), kMiB), 0);
}

}  // namespace
}  // namespace trash_panda::runtime
