// Damaged exponent code: refused, or decoded to something, but never past the ends of anything; and
// all implementations agree on which. The address sanitizer sees what the guards here do not.

#include <map>

#include <gtest/gtest.h>

#include "format/support/exponent_samples.h"

namespace trash_panda::format {
namespace {

using testing::Bytes;
using testing::encode;

/// What came of decoding: nothing, or the elements.
struct DecodeOutcome {
  bool is_refused;
  Bytes decoded;

  bool operator==(const DecodeOutcome&) const = default;
};

DecodeOutcome decode_between_guards(Dtype dtype, const Bytes& coded, std::size_t raw_bytes,
                                    const ExponentImplementation& implementation) {
  constexpr std::size_t kGuardBytes = 256;
  Bytes room(raw_bytes + 2 * kGuardBytes, std::byte{0x5a});
  const std::span<std::byte> raw = std::span(room).subspan(kGuardBytes, raw_bytes);
  const Result<void> decoded =
      decode_exponents(dtype, coded, raw, {.implementation = &implementation});
  DecodeOutcome outcome{.is_refused = !decoded, .decoded = {}};
  if (decoded) {
    outcome.decoded.assign(raw.begin(), raw.end());
  } else {
    EXPECT_EQ(decoded.error().code(), ErrorCode::kCorrupt);
  }
  std::ranges::fill(raw, std::byte{0x5a});
  EXPECT_TRUE(std::ranges::all_of(room, [](std::byte byte) { return byte == std::byte{0x5a}; }));
  return outcome;
}

/// Decodes with every implementation; they must agree. Returns whether the code was refused.
bool all_refuse(Dtype dtype, const Bytes& coded, std::size_t raw_bytes) {
  const DecodeOutcome expected =
      decode_between_guards(dtype, coded, raw_bytes, **find_exponent_implementation("portable"));
  for (const ExponentImplementation& implementation : exponent_implementations()) {
    if (implementation.is_supported) {
      EXPECT_EQ(decode_between_guards(dtype, coded, raw_bytes, implementation), expected)
          << implementation.name;
    }
  }
  return expected.is_refused;
}

class DamagedExponentCode : public ::testing::TestWithParam<Dtype> {
 protected:
  Bytes raw_ = testing::gaussian(GetParam(), 2048 + 300);
  Bytes coded_ = encode(GetParam(), raw_, best_exponent_implementation());
};

INSTANTIATE_TEST_SUITE_P(, DamagedExponentCode, ::testing::Values(Dtype::kBf16, Dtype::kF32),
                         [](const ::testing::TestParamInfo<Dtype>& one) {
                           return std::string(dtype_name(one.param));
                         });

TEST_P(DamagedExponentCode, IsRefusedAtEveryLength) {
  for (std::size_t size = 0; size < coded_.size(); size += 13) {
    const Bytes cut(coded_.begin(), coded_.begin() + static_cast<std::ptrdiff_t>(size));
    ASSERT_TRUE(all_refuse(GetParam(), cut, raw_.size())) << size;
  }
}

TEST_P(DamagedExponentCode, BitFlipsInHeadAndRecordsAreRefusedButForTables) {
  constexpr std::size_t kTables = 9;
  constexpr std::size_t kTablesEnd = 19;
  constexpr std::size_t kRecordsEnd = 32 + 2 * 4;
  for (std::size_t bit = 0; bit < kRecordsEnd * 8; ++bit) {
    Bytes damaged = coded_;
    damaged[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    const bool is_table = bit / 8 >= kTables && bit / 8 < kTablesEnd;
    ASSERT_EQ(all_refuse(GetParam(), damaged, raw_.size()), !is_table) << bit;
  }
}

TEST_P(DamagedExponentCode, RandomBytesAnywhereStayInside) {
  std::mt19937 random(5);
  std::map<bool, int> counts;
  for (int round = 0; round < 300; ++round) {
    Bytes damaged = coded_;
    for (auto left = 1 + random() % 8; left > 0; --left) {
      damaged[random() % damaged.size()] = static_cast<std::byte>(random());
    }
    ++counts[all_refuse(GetParam(), damaged, raw_.size())];
  }
  // Both happen: rests may be anything, counts may not.
  EXPECT_GT(counts[true], 25);
  EXPECT_GT(counts[false], 25);
}

TEST_P(DamagedExponentCode, CodesThatAskForMoreThanThereIsAreRefused) {
  // All codes of the first level escape, or all of the second are literals; their counts do not.
  const std::size_t rests = 64;
  const std::size_t codes = rests + 2368;
  Bytes all_escape = coded_;
  std::fill_n(all_escape.begin() + static_cast<std::ptrdiff_t>(codes), 2368 / 4, std::byte{0xff});
  EXPECT_TRUE(all_refuse(GetParam(), all_escape, raw_.size()));
  const std::size_t escapes =
      codes + 2368 / 4 + (GetParam() == Dtype::kF32 ? std::size_t{2} * 2368 : 0);
  Bytes all_literals = coded_;
  std::fill(all_literals.begin() + static_cast<std::ptrdiff_t>(escapes), all_literals.end(),
            std::byte{0xff});
  EXPECT_TRUE(all_refuse(GetParam(), all_literals, raw_.size()));
}

TEST_P(DamagedExponentCode, IsRefusedForAnotherNumberOfElements) {
  const std::size_t width = testing::width_of(GetParam());
  for (const std::size_t raw_bytes : {std::size_t{0}, width, raw_.size() - width,
                                      raw_.size() + width, 65'536 * width, 65'537 * width}) {
    EXPECT_TRUE(all_refuse(GetParam(), coded_, raw_bytes)) << raw_bytes;
  }
  std::vector<std::byte> tile(width);
  EXPECT_FALSE(decode_exponent_tile(GetParam(), coded_, 2, tile));
  EXPECT_FALSE(decode_exponent_tile(GetParam(), coded_, 1, tile));
  EXPECT_FALSE(decode_exponent_tile(GetParam(), coded_, ~std::size_t{0}, tile));
}

}  // namespace
}  // namespace trash_panda::format
