#include "weight_rounding.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "base/support/temp_dir.h"

namespace trash_panda::format {
namespace {

using testing::must;

constexpr float kNanValue = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

template <class T>
std::vector<T> round_to(Dtype dtype, const std::vector<float>& values,
                        std::optional<float> scale = {}) {
  std::vector<T> target(values.size());
  must(convert_weight({.dtype = dtype, .scale = scale}, Dtype::kF32,
                      std::as_bytes(std::span(values)), std::as_writable_bytes(std::span(target))));
  return target;
}

/// Value of a code of F8_E4M3, from its definition.
double e4m3_value(unsigned code) {
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  const int exponent = static_cast<int>(code >> 3 & 15);
  const double mantissa = code & 7;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10));
}

TEST(RoundToE4M3, GivesEachValueItsOwnCode) {
  for (unsigned code = 0; code < 256; ++code) {
    if ((code & 0x7f) != 0x7f) {
      const auto value = static_cast<float>(e4m3_value(code));
      EXPECT_EQ(round_to<std::uint8_t>(Dtype::kF8E4M3, {value})[0], code);
    }
  }
}

TEST(RoundToE4M3, TakesTheNearestAndTheEvenOneOfTwo) {
  for (unsigned code = 0; code < 0x7e; ++code) {
    const double low = e4m3_value(code);
    const double high = e4m3_value(code + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    const std::vector<float> values = {middle, std::nextafter(middle, 0.0F),
                                       std::nextafter(middle, kInfinite), -middle};
    const unsigned even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(round_to<std::uint8_t>(Dtype::kF8E4M3, values),
              (std::vector<std::uint8_t>{
                  static_cast<std::uint8_t>(even), static_cast<std::uint8_t>(code),
                  static_cast<std::uint8_t>(code + 1), static_cast<std::uint8_t>(even | 0x80)}));
  }
}

TEST(RoundToE4M3, EndsAt448AndKeepsNan) {
  EXPECT_EQ(
      round_to<std::uint8_t>(Dtype::kF8E4M3, {449.0F, -1e30F, kInfinite, kNanValue, -0.0F, 1e-30F}),
      (std::vector<std::uint8_t>{0x7e, 0xfe, 0x7e, 0x7f, 0x80, 0x00}));
}

TEST(RoundToE4M3, DividesByTheScale) {
  EXPECT_EQ(round_to<std::uint8_t>(Dtype::kF8E4M3, {1.0F, -0.5F}, 0.5F),
            round_to<std::uint8_t>(Dtype::kF8E4M3, {2.0F, -1.0F}));
}

TEST(RoundToBf16, TakesTheNearestAndTheEvenOneOfTwo) {
  const auto from_bits = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  EXPECT_EQ(round_to<std::uint16_t>(Dtype::kBf16, {from_bits(0x3f808000), from_bits(0x3f818000),
                                                   from_bits(0x3f808001), from_bits(0x3f807fff),
                                                   from_bits(0x7f7fffff), kNanValue, -kInfinite}),
            (std::vector<std::uint16_t>{0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x7f80, 0xffff, 0xff80}));
}

TEST(RoundToF16, IsThatOfTheCompiler) {
  std::mt19937 random(1);
  std::vector<float> values = {0.0F,     -0.0F,  65519.0F, 65520.0F,  0x1p-14F,  0x1.ffcp-15F,
                               0x1p-24F, 1e-30F, 0x1p-25F, kInfinite, -kInfinite};
  for (int i = 0; i < 10'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    values.push_back(std::isnan(value) ? 1.0F : value);
    values.push_back(static_cast<float>(random() % 200'000) * 1e-6F);
  }
  const std::vector<std::uint16_t> rounded = round_to<std::uint16_t>(Dtype::kF16, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto expected = static_cast<_Float16>(values[i]);
    ASSERT_EQ(rounded[i], std::bit_cast<std::uint16_t>(expected)) << values[i];
  }
}

TEST(ConvertWeight, NarrowsExactlyOrNotAtAll) {
  const std::vector<std::uint32_t> narrow = {0x3f800000, 0xff800000, 0x7fc10000, 0x00010000};
  std::vector<std::uint16_t> target(4);
  const WeightConversion conversion = {.dtype = Dtype::kBf16, .is_exact = true};
  must(convert_weight(conversion, Dtype::kF32, std::as_bytes(std::span(narrow)),
                      std::as_writable_bytes(std::span(target))));
  EXPECT_EQ(target, (std::vector<std::uint16_t>{0x3f80, 0xff80, 0x7fc1, 0x0001}));
  std::vector<std::uint32_t> wide(4);
  widen_bf16(std::as_bytes(std::span(target)), std::as_writable_bytes(std::span(wide)));
  EXPECT_EQ(wide, narrow);
  const std::vector<std::uint32_t> other = {0x3f800000, 0x3f800001, 0, 0};
  const Result<void> refused =
      convert_weight(conversion, Dtype::kF32, std::as_bytes(std::span(other)),
                     std::as_writable_bytes(std::span(target)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kStale);
}

TEST(LargestMagnitude, FindsItInEveryDtypeAndNanAboveAll) {
  std::vector<float> values(5000, 0.25F);
  values[4999] = -3.0F;
  EXPECT_EQ(largest_magnitude(Dtype::kF32, std::as_bytes(std::span(values))), 3.0F);
  const auto bf16 = round_to<std::uint16_t>(Dtype::kBf16, values);
  EXPECT_EQ(largest_magnitude(Dtype::kBf16, std::as_bytes(std::span(bf16))), 3.0F);
  const auto f16 = round_to<std::uint16_t>(Dtype::kF16, values);
  EXPECT_EQ(largest_magnitude(Dtype::kF16, std::as_bytes(std::span(f16))), 3.0F);
  values[7] = kNanValue;
  EXPECT_TRUE(std::isnan(largest_magnitude(Dtype::kF32, std::as_bytes(std::span(values)))));
  EXPECT_EQ(largest_magnitude(Dtype::kF32, {}), 0.0F);
  EXPECT_EQ(fp8_scale(0.0F), 1e-12F);
  EXPECT_EQ(fp8_scale(896.0F), 2.0F);
}

}  // namespace
}  // namespace trash_panda::format
