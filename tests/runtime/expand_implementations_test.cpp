// Every implementation of expand() that this CPU has makes the bits that "portable" makes, which
// expand_test.cpp compares with arithmetic of another kind.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/runtime/expand.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Granularity;
using format::Shape;
using Bytes = std::vector<std::byte>;

constexpr std::array<Dtype, 8> kSourceDtypes = {
    Dtype::kF8E4M3, Dtype::kF8E5M2, Dtype::kF8E4M3Fnuz, Dtype::kF8E5M2Fnuz,
    Dtype::kBf16,   Dtype::kF16,    Dtype::kF32,        Dtype::kF64};
constexpr std::array<Dtype, 3> kTargetDtypes = {Dtype::kBf16, Dtype::kF16, Dtype::kF32};

std::vector<float> special_scales() {
  return {1.0F,
          -1.0F,
          0.0F,
          -0.0F,
          0.0123F,
          3.5e4F,
          0x1p-149F,
          0x1.8p-130F,
          0x1.fffffep127F,
          std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity(),
          std::numeric_limits<float>::quiet_NaN(),
          std::bit_cast<float>(std::uint32_t{0x7f80'0001}),
          std::bit_cast<float>(std::uint32_t{0xffc1'2345})};
}

/// Every 8-bit or 16-bit code, or as many random wider ones, subnormal and infinite ones and NaN
/// among them.
Bytes all_codes(Dtype dtype) {
  const std::size_t width_bytes = format::dtype_bits(dtype) / 8;
  const std::size_t count = width_bytes == 1 ? 256 : 65'536;
  std::mt19937_64 random(7);
  Bytes codes(count * width_bytes);
  for (std::size_t code = 0; code < count; ++code) {
    std::uint64_t bits = width_bytes <= 2 ? code : random();
    if (width_bytes == 4 && code % 2 == 0) {
      bits =
          (code << 16U) | (code % 4 == 0 ? 0x8000U : random() & 0xffffU);  // Ties, all exponents.
    }
    std::memcpy(codes.data() + code * width_bytes, &bits, width_bytes);
  }
  return codes;
}

/// expand() into the middle of guarded memory, `shift` bytes off an address that vectors like.
Bytes expand_at(const ExpandSource& source, Dtype to, std::size_t shift,
                const ExpandImplementation& implementation) {
  constexpr std::size_t kGuardBytes = 64;
  const std::size_t elements = source.payload.size() / (format::dtype_bits(source.dtype) / 8);
  const std::size_t size_bytes = elements * format::dtype_bits(to) / 8;
  Bytes memory(size_bytes + 3 * kGuardBytes, std::byte{0xa5});
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::size_t begin =
      kGuardBytes + (kGuardBytes - address % kGuardBytes) + shift % kGuardBytes;
  expand(source, to, std::span(memory).subspan(begin, size_bytes), implementation);
  const auto is_untouched = [](std::byte guard) { return guard == std::byte{0xa5}; };
  EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(begin),
                          is_untouched));
  EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(begin + size_bytes),
                          memory.end(), is_untouched));
  return {memory.begin() + static_cast<std::ptrdiff_t>(begin),
          memory.begin() + static_cast<std::ptrdiff_t>(begin + size_bytes)};
}

/// The codes of a dtype that are not NaN: of two NaN, a multiplication may keep either.
Bytes numbers_only(Dtype dtype, const Bytes& codes) {
  const std::size_t width_bytes = format::dtype_bits(dtype) / 8;
  const Shape shape = {codes.size() / width_bytes};
  std::vector<float> values(shape[0]);
  expand({.dtype = dtype, .shape = &shape, .payload = codes, .scale = {}}, Dtype::kF32,
         std::as_writable_bytes(std::span(values)), **find_expand_implementation("portable"));
  Bytes numbers;
  for (std::size_t at = 0; at < values.size(); ++at) {
    if (!std::isnan(values[at])) {
      numbers.insert(numbers.end(), codes.begin() + static_cast<std::ptrdiff_t>(at * width_bytes),
                     codes.begin() + static_cast<std::ptrdiff_t>((at + 1) * width_bytes));
    }
  }
  return numbers;
}

class ExpandImplementations : public ::testing::TestWithParam<const ExpandImplementation*> {
 protected:
  static void expect_portable_bits(const ExpandSource& source, Dtype to, std::size_t shift = 0) {
    const ExpandImplementation& portable = **find_expand_implementation("portable");
    // Not EXPECT_EQ: it would print a hundred thousand bytes.
    EXPECT_TRUE(expand_at(source, to, shift, *GetParam()) == expand_at(source, to, 0, portable))
        << format::dtype_name(source.dtype) << " to " << format::dtype_name(to) << ", scale "
        << (source.scale.empty() ? 0 : std::bit_cast<std::uint32_t>(source.scale[0]));
  }
};

TEST_P(ExpandImplementations, EveryCodeTimesEveryKindOfScale) {
  for (const Dtype from : kSourceDtypes) {
    const Bytes codes = all_codes(from);
    const Bytes numbers = numbers_only(from, codes);
    for (const Dtype to : kTargetDtypes) {
      const Shape shape = {codes.size() * 8 / format::dtype_bits(from)};
      expect_portable_bits({.dtype = from, .shape = &shape, .payload = codes, .scale = {}}, to);
      for (const float scale : special_scales()) {
        const Bytes& scaled = std::isnan(scale) ? numbers : codes;
        const Shape scaled_shape = {scaled.size() * 8 / format::dtype_bits(from)};
        expect_portable_bits({.dtype = from,
                              .shape = &scaled_shape,
                              .payload = scaled,
                              .scale = std::span(&scale, 1)},
                             to);
      }
    }
  }
}

TEST_P(ExpandImplementations, EveryLengthAtEveryAddress) {
  const float scale = 0.37F;
  for (const Dtype from : kSourceDtypes) {
    const Bytes codes = all_codes(from);
    const std::size_t width_bytes = format::dtype_bits(from) / 8;
    for (std::size_t count = 1; count <= 70; ++count) {
      const Shape shape = {count};
      for (const Dtype to : kTargetDtypes) {
        const std::span payload = std::span(codes).subspan(count % 7, count * width_bytes);
        expect_portable_bits(
            {.dtype = from, .shape = &shape, .payload = payload, .scale = std::span(&scale, 1)}, to,
            count);
      }
    }
  }
}

TEST_P(ExpandImplementations, LongResultsAtEveryAddress) {
  std::mt19937 random(3);
  Bytes codes(300'000);
  // Numbers only, but for the last tenth: NaN are rare in weights, and made by other code.
  std::ranges::generate(codes, [&] { return static_cast<std::byte>(random() & 0xfbU); });
  std::ranges::generate(codes.end() - 30'000, codes.end(),
                        [&] { return static_cast<std::byte>(random()); });
  const Shape shape = {codes.size()};
  const float scale = 1.7F;
  for (const Dtype to : kTargetDtypes) {
    for (const std::size_t shift : {0U, 2U, 16U, 32U, 48U}) {
      expect_portable_bits({.dtype = Dtype::kF8E4M3,
                            .shape = &shape,
                            .payload = codes,
                            .scale = std::span(&scale, 1)},
                           to, shift);
    }
  }
}

TEST_P(ExpandImplementations, LongRunsOfEveryCodeTimesEveryKindOfScale) {
  for (const Dtype from : {Dtype::kF8E4M3, Dtype::kF8E5M2}) {
    const Bytes codes = all_codes(from);
    const Bytes numbers = numbers_only(from, codes);
    for (const float scale : special_scales()) {
      const Bytes& once = std::isnan(scale) ? numbers : codes;
      Bytes often;
      for (int time = 0; time < 8; ++time) {
        often.insert(often.end(), once.begin(), once.end());
      }
      often.resize(often.size() - 3);  // Not of whole vectors.
      const Shape shape = {often.size()};
      expect_portable_bits(
          {.dtype = from, .shape = &shape, .payload = often, .scale = std::span(&scale, 1)},
          Dtype::kBf16);
    }
  }
}

/// Products at either end of what BF16 can hold, where instructions that round may flush.
TEST_P(ExpandImplementations, TilesOfVerySmallAndVeryLargeScales) {
  const Shape shape = {16, 512};
  std::mt19937 random(17);
  Bytes codes(std::size_t{16} * 512);
  std::ranges::generate(codes, [&] { return static_cast<std::byte>(random() & 0xbbU); });
  for (const int exponent : {-140, -126, -119, -118, -117, -111, -110, -109, 117, 118, 119, 127}) {
    std::vector<float> scales(std::size_t{16} * 16);
    std::ranges::generate(scales, [&] {
      const float mantissa = 1.0F + 0x1p-23F * static_cast<float>(random() % (1U << 23U));
      return std::ldexp(random() % 4 == 0 ? -mantissa : mantissa, exponent);
    });
    for (const Dtype from : {Dtype::kF8E4M3, Dtype::kF8E5M2}) {
      expect_portable_bits({.dtype = from,
                            .shape = &shape,
                            .payload = codes,
                            .scale = scales,
                            .granularity = Granularity::kBlock,
                            .block_rows = 1,
                            .block_columns = 32},
                           Dtype::kBf16);
    }
  }
}

/// Tiles whose widths are of whole vectors, with codes and scales of every kind.
TEST_P(ExpandImplementations, WideTilesOfEveryCodeTimesEveryKindOfScale) {
  std::vector<float> kinds = special_scales();
  std::erase_if(kinds, [](float scale) { return std::isnan(scale); });
  const Shape shape = {2, 40, 192};
  std::mt19937 random(13);
  Bytes codes(std::size_t{2} * 40 * 192);
  for (const bool is_number : {true, false}) {
    // Without the last bit of the exponent none is NaN or infinite.
    const unsigned mask = is_number ? 0xbbU : 0xffU;
    std::ranges::generate(codes, [&] { return static_cast<std::byte>(random() & mask); });
    for (const auto& [rows, columns] : {std::pair(32U, 64U), {40U, 128U}, {4U, 32U}, {1U, 64U}}) {
      const std::size_t count =
          std::size_t{2} * ((40 + rows - 1) / rows) * ((192 + columns - 1) / columns);
      for (const bool is_special : {true, false}) {
        std::vector<float> scales(count);
        std::ranges::generate(scales, [&] {
          return is_special ? kinds[random() % kinds.size()]
                            : 0x1p-9F * static_cast<float>(1 + random() % 9999);
        });
        for (const Dtype from : {Dtype::kF8E4M3, Dtype::kF8E5M2}) {
          for (const std::size_t shift : {0U, 2U}) {
            expect_portable_bits({.dtype = from,
                                  .shape = &shape,
                                  .payload = codes,
                                  .scale = scales,
                                  .granularity = Granularity::kBlock,
                                  .block_rows = rows,
                                  .block_columns = columns},
                                 Dtype::kBf16, shift);
          }
        }
      }
    }
  }
}

struct ScaledCase {
  Granularity granularity;
  std::size_t scale_count;
  std::uint64_t block_rows = 0;
  std::uint64_t block_columns = 0;
};

TEST_P(ExpandImplementations, EveryKindOfGrid) {
  const Shape shape = {3, 21, 83};
  std::mt19937 random(11);
  Bytes codes(std::size_t{3} * 21 * 83);
  std::ranges::generate(codes, [&] { return static_cast<std::byte>(random()); });
  const std::array<ScaledCase, 8> cases = {{
      {Granularity::kTensor, 1},
      {Granularity::kRow, 3},
      {Granularity::kRow, std::size_t{3} * 21},
      {Granularity::kColumn, 83},
      {Granularity::kColumn, std::size_t{3} * 83},
      {Granularity::kBlock, std::size_t{3} * 3 * 3, 8, 32},
      {Granularity::kBlock, std::size_t{3} * 21 * 3, 1, 32},
      {Granularity::kBlock, std::size_t{3} * 3 * 83, 8, 1},
  }};
  for (const ScaledCase& one : cases) {
    std::vector<float> scales(one.scale_count);
    std::ranges::generate(scales, [&] {
      return std::bit_cast<float>(static_cast<std::uint32_t>(0x3c00'0000 + random() % 9'999'999));
    });
    std::vector<std::uint8_t> exponents(one.scale_count);
    // Not 255, which is NaN: of two NaN, a multiplication may keep either.
    std::ranges::generate(exponents, [&] { return static_cast<std::uint8_t>(random() % 255); });
    for (const Dtype to : kTargetDtypes) {
      ExpandSource source = {.dtype = Dtype::kF8E5M2,
                             .shape = &shape,
                             .payload = codes,
                             .scale = scales,
                             .granularity = one.granularity,
                             .block_rows = one.block_rows,
                             .block_columns = one.block_columns};
      expect_portable_bits(source, to);
      source.scale = {};
      source.scale_codes = exponents;
      expect_portable_bits(source, to);
    }
  }
}

std::vector<const ExpandImplementation*> supported() {
  std::vector<const ExpandImplementation*> all;
  for (const ExpandImplementation& implementation : expand_implementations()) {
    if (implementation.is_supported) {
      all.push_back(&implementation);
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, ExpandImplementations, ::testing::ValuesIn(supported()),
                         [](const auto& one) { return std::string(one.param->name); });

TEST(FindExpandImplementation, KnowsThoseOfThisCpuAndSaysWhatThereIs) {
  EXPECT_EQ(&best_expand_implementation(), supported().front());
  for (const ExpandImplementation& implementation : expand_implementations()) {
    const auto found = find_expand_implementation(implementation.name);
    if (implementation.is_supported) {
      ASSERT_TRUE(found);
      EXPECT_EQ(*found, &implementation);
    } else {
      ASSERT_FALSE(found);
      EXPECT_EQ(found.error().code(), ErrorCode::kUnsupported);
    }
  }
  const auto unknown = find_expand_implementation("mmx");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(unknown.error().to_string(), ::testing::HasSubstr("portable"));
}

}  // namespace
}  // namespace trash_panda::runtime
