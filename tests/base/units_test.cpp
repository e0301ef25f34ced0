#include "trash_panda/base/units.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace trash_panda {
namespace {

TEST(RoundUp, RoundsToTheNextMultiple) {
  EXPECT_EQ(round_up(0, 4096), 0U);
  EXPECT_EQ(round_up(1, 4096), 4096U);
  EXPECT_EQ(round_up(4096, 4096), 4096U);
  EXPECT_EQ(round_up(4097, 4096), 8192U);
  EXPECT_EQ(round_up(10, 3), 12U);
}

TEST(RoundUp, RefusesToWrap) {
  EXPECT_EQ(round_up(UINT64_MAX - 4095, 4096), UINT64_MAX - 4095);
  const Result<std::uint64_t> wrapped = round_up(UINT64_MAX - 4094, 4096);
  ASSERT_FALSE(wrapped);
  EXPECT_EQ(wrapped.error().code(), ErrorCode::kCorrupt);
}

TEST(ParseBytes, ReadsDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("0"), 0U);
  EXPECT_EQ(parse_bytes("1.5GB"), 1'500'000'000U);
  EXPECT_EQ(parse_bytes("20 gb"), 20'000'000'000U);
  EXPECT_EQ(parse_bytes("4GiB"), 4 * kGiB);
  EXPECT_EQ(parse_bytes("4G"), 4 * kGiB);
  EXPECT_EQ(parse_bytes("800m"), 800 * kMiB);
  EXPECT_EQ(parse_bytes("18446744073709551615"), UINT64_MAX);
}

TEST(ParseBytes, ReadsPercentagesOfAWhole) {
  EXPECT_EQ(parse_bytes("25%", 1000), 250U);
  EXPECT_FALSE(parse_bytes("25%"));
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "GB", "-1", "-1GB", "1e3x", "12 parsecs", "1.2.3", "nan", "inf",
                           "0x10", "18446744073709551616", "99999999TB"}) {
    const Result<std::uint64_t> parsed = parse_bytes(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code(), ErrorCode::kUsage) << text;
  }
}

TEST(FormatBytes, KeepsThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(12'130'000'000), "12.1 GB");
  EXPECT_EQ(format_bytes(831'400'000), "831 MB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
}

TEST(FormatCount, SeparatesThousands) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(91'991'123), "91,991,123");
}

}  // namespace
}  // namespace trash_panda
