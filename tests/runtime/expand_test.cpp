#include "trash_panda/runtime/expand.h"

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

#include "runtime/support/slow_floats.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Granularity;
using format::Shape;
using trash_panda::testing::slow_decode;
using trash_panda::testing::slow_encode;
using trash_panda::testing::SlowFormat;

constexpr std::array<Dtype, 4> kFp8Dtypes = {Dtype::kF8E4M3, Dtype::kF8E5M2, Dtype::kF8E4M3Fnuz,
                                             Dtype::kF8E5M2Fnuz};
constexpr std::array<Dtype, 3> kTargets = {Dtype::kBf16, Dtype::kF16, Dtype::kF32};

const SlowFormat& slow_format(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF8E4M3:
      return trash_panda::testing::kSlowE4M3;
    case Dtype::kF8E5M2:
      return trash_panda::testing::kSlowE5M2;
    case Dtype::kF8E4M3Fnuz:
      return trash_panda::testing::kSlowE4M3Fnuz;
    case Dtype::kF8E5M2Fnuz:
      return trash_panda::testing::kSlowE5M2Fnuz;
    case Dtype::kF16:
      return trash_panda::testing::kSlowF16;
    case Dtype::kBf16:
      return trash_panda::testing::kSlowBf16;
    default:
      return trash_panda::testing::kSlowF32;
  }
}

/// Elements of an expansion as unsigned integers of their width.
std::vector<std::uint32_t> codes_of(std::span<const std::byte> bytes, std::size_t width_bytes) {
  std::vector<std::uint32_t> codes(bytes.size() / width_bytes);
  for (std::size_t at = 0; at < codes.size(); ++at) {
    std::memcpy(&codes[at], bytes.data() + at * width_bytes, width_bytes);
  }
  return codes;
}

std::vector<std::uint32_t> expand_codes(const ExpandSource& source, Dtype to) {
  const std::size_t width_bytes = format::dtype_bits(to) / 8;
  const std::size_t elements = source.payload.size() / (format::dtype_bits(source.dtype) / 8);
  std::vector<std::byte> target(elements * width_bytes, std::byte{0xa5});
  expand(source, to, target);
  return codes_of(target, width_bytes);
}

bool is_nan_code(Dtype dtype, std::uint32_t code) {
  return std::isnan(slow_decode(slow_format(dtype), code));
}

/// decode, times scale in F32 (the product of two F32 numbers is exact in double), one rounding.
void expect_element(std::uint32_t result, Dtype from, std::uint32_t code, float scale, Dtype to) {
  const double decoded = slow_decode(slow_format(from), code);
  const double product = decoded * static_cast<double>(scale);
  const auto rounded = static_cast<float>(product);
  if (std::isnan(rounded)) {
    EXPECT_TRUE(is_nan_code(to, result)) << std::hex << code << " * " << scale << " = " << result;
    if (to == Dtype::kBf16) {
      EXPECT_EQ(result, 0xffffU);
    }
    return;
  }
  EXPECT_EQ(result, slow_encode(slow_format(to), rounded))
      << format::dtype_name(from) << " " << std::hex << code << " * " << std::hexfloat << scale
      << " to " << format::dtype_name(to);
}

std::vector<float> interesting_scales() {
  using Limits = std::numeric_limits<float>;
  std::vector<float> scales = {0.0F,
                               -0.0F,
                               1.0F,
                               -1.0F,
                               0.1F,
                               -3.0F,
                               1.0F / 448,
                               Limits::min(),
                               Limits::denorm_min(),
                               -Limits::denorm_min(),
                               Limits::max(),
                               -Limits::max(),
                               Limits::infinity(),
                               -Limits::infinity(),
                               Limits::quiet_NaN(),
                               -Limits::quiet_NaN()};
  std::mt19937 random(20240613);
  for (int at = 0; at < 400; ++at) {
    scales.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  // Where the results are subnormal, or near the largest, in F16.
  std::uniform_real_distribution<float> mantissa(1.0F, 2.0F);
  for (int exponent = -40; exponent <= 20; ++exponent) {
    scales.push_back(std::ldexp(mantissa(random), exponent));
  }
  return scales;
}

TEST(Expand, EveryFp8CodeTimesEveryKindOfScale) {
  std::array<std::byte, 256> codes;
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = static_cast<std::byte>(code);
  }
  const Shape shape = {256};
  for (const float scale : interesting_scales()) {
    for (const Dtype from : kFp8Dtypes) {
      for (const Dtype to : kTargets) {
        const std::vector<std::uint32_t> results = expand_codes(
            {.dtype = from, .shape = &shape, .payload = codes, .scale = {&scale, 1}}, to);
        for (std::uint32_t code = 0; code < 256; ++code) {
          expect_element(results[code], from, code, scale, to);
        }
        if (HasFailure()) {
          return;
        }
      }
    }
  }
}

TEST(Expand, EveryExponentCodeIsItsPowerOfTwo) {
  std::array<std::byte, 256> codes;
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = static_cast<std::byte>(code);
  }
  const Shape shape = {256};
  for (std::uint32_t scale_code = 0; scale_code < 256; ++scale_code) {
    const auto stored = static_cast<std::uint8_t>(scale_code);
    const float scale = scale_code == 255 ? std::numeric_limits<float>::quiet_NaN()
                                          : std::ldexp(1.0F, static_cast<int>(scale_code) - 127);
    for (const Dtype to : kTargets) {
      ExpandSource source = {
          .dtype = Dtype::kF8E5M2, .shape = &shape, .payload = codes, .scale = {&scale, 1}};
      const std::vector<std::uint32_t> by_float = expand_codes(source, to);
      source.scale = {};
      source.scale_codes = {&stored, 1};
      const std::vector<std::uint32_t> results = expand_codes(source, to);
      EXPECT_EQ(results, by_float) << scale_code;  // The bits of every NaN, too.
      for (std::uint32_t code = 0; code < 256; ++code) {
        expect_element(results[code], Dtype::kF8E5M2, code, scale, to);
      }
      ASSERT_FALSE(HasFailure());
    }
  }
}

TEST(Expand, LongRunsEqualShortOnes) {
  // One scale for a long run goes by a table of products; the results must not show it.
  constexpr std::size_t kElements = 4096;
  std::vector<std::byte> payload(kElements);
  for (std::size_t at = 0; at < kElements; ++at) {
    payload[at] = static_cast<std::byte>(at * 37);
  }
  const Shape one_run = {kElements};
  const Shape short_runs = {256, 16};
  for (const float scale : {0.37F, std::numeric_limits<float>::quiet_NaN(), -1e-30F, 3e37F}) {
    const std::vector<float> repeated(256, scale);
    for (const Dtype from : kFp8Dtypes) {
      for (const Dtype to : kTargets) {
        if (std::isnan(scale) && to != Dtype::kBf16) {
          continue;  // Of two NaN, a multiplication may keep either.
        }
        EXPECT_EQ(
            expand_codes(
                {.dtype = from, .shape = &one_run, .payload = payload, .scale = {&scale, 1}}, to),
            expand_codes({.dtype = from,
                          .shape = &short_runs,
                          .payload = payload,
                          .scale = repeated,
                          .granularity = Granularity::kRow},
                         to));
      }
    }
  }
}

TEST(Expand, Fp8WithoutScaleIsItsValue) {
  std::array<std::byte, 256> codes;
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = static_cast<std::byte>(code);
  }
  const Shape shape = {16, 16};
  for (const Dtype from : kFp8Dtypes) {
    for (const Dtype to : kTargets) {
      const std::vector<std::uint32_t> results =
          expand_codes({.dtype = from, .shape = &shape, .payload = codes, .scale = {}}, to);
      for (std::uint32_t code = 0; code < 256; ++code) {
        expect_element(results[code], from, code, 1.0F, to);
      }
    }
  }
}

/// F32 numbers around everything that decides a rounding to a 16-bit format.
std::vector<float> rounding_boundaries(const SlowFormat& format) {
  std::vector<float> values;
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const double value = slow_decode(format, code);
    if (std::isnan(value)) {
      continue;
    }
    const auto exact = static_cast<float>(value);
    const double next = slow_decode(format, code + 1 < 0x10000 ? code + 1 : code);
    const auto middle = static_cast<float>((value + next) / 2);
    for (const float at : {exact, middle}) {
      values.push_back(at);
      values.push_back(std::nextafter(at, std::numeric_limits<float>::infinity()));
      values.push_back(std::nextafter(at, -std::numeric_limits<float>::infinity()));
    }
  }
  values.push_back(65519.99F);  // Just below the tie of the largest F16 number and infinity.
  values.push_back(65520.0F);
  values.push_back(std::bit_cast<float>(0x7f7f7fffU));  // The same of BF16.
  values.push_back(std::bit_cast<float>(0x7f7f8000U));
  return values;
}

TEST(Expand, RoundsOnceToNearestEvenAtEveryBoundary) {
  for (const Dtype to : {Dtype::kBf16, Dtype::kF16}) {
    std::vector<float> values = rounding_boundaries(slow_format(to));
    std::erase_if(values, [](float value) { return std::isnan(value); });
    const Shape shape = {values.size()};
    const std::vector<std::uint32_t> results =
        expand_codes({.dtype = Dtype::kF32,
                      .shape = &shape,
                      .payload = std::as_bytes(std::span(values)),
                      .scale = {}},
                     to);
    for (std::size_t at = 0; at < values.size(); ++at) {
      ASSERT_EQ(results[at], slow_encode(slow_format(to), values[at]))
          << std::hexfloat << values[at] << " to " << format::dtype_name(to);
    }
  }
}

TEST(Expand, EverySixteenBitCode) {
  std::vector<std::uint16_t> codes(0x10000);
  for (std::size_t code = 0; code < codes.size(); ++code) {
    codes[code] = static_cast<std::uint16_t>(code);
  }
  const Shape shape = {256, 256};
  for (const Dtype from : {Dtype::kF16, Dtype::kBf16}) {
    for (const Dtype to : kTargets) {
      for (const float scale : {1.0F, 0.3F, -1e-5F, 70000.0F}) {
        const std::vector<std::uint32_t> results =
            expand_codes({.dtype = from,
                          .shape = &shape,
                          .payload = std::as_bytes(std::span(codes)),
                          .scale = {&scale, 1}},
                         to);
        for (std::uint32_t code = 0; code < codes.size(); ++code) {
          expect_element(results[code], from, code, scale, to);
        }
        ASSERT_FALSE(HasFailure());
      }
    }
  }
}

TEST(Expand, NanKeepsWhatTorchKeeps) {
  // Recorded from torch 2.13.0 on x86 with AVX2. BF16 has one NaN; F16 keeps the sign and the upper
  // payload and is quiet, as VCVTPS2PH makes it.
  const std::vector<std::uint32_t> values = {0x7fc00000, 0xffc00000, 0x7f800001,
                                             0xff812000, 0x7fffffff, 0x7f802000};
  const Shape shape = {values.size()};
  const ExpandSource source = {.dtype = Dtype::kF32,
                               .shape = &shape,
                               .payload = std::as_bytes(std::span(values)),
                               .scale = {}};
  EXPECT_EQ(expand_codes(source, Dtype::kBf16), std::vector<std::uint32_t>(6, 0xffff));
  EXPECT_EQ(expand_codes(source, Dtype::kF16),
            (std::vector<std::uint32_t>{0x7e00, 0xfe00, 0x7e00, 0xfe09, 0x7fff, 0x7e01}));
  EXPECT_EQ(expand_codes(source, Dtype::kF32), values);
}

TEST(Expand, Fp8NanHasThePayloadOfTorch) {
  // Recorded from torch 2.13.0, on the CPU: codes of NaN, and what they are in F32.
  struct Case {
    Dtype from;
    std::uint8_t code;
    std::uint32_t bits;
  };
  const Shape shape = {1};
  for (const Case& tested :
       {Case{Dtype::kF8E4M3, 0x7f, 0x7ff00000}, Case{Dtype::kF8E4M3, 0xff, 0xfff00000},
        Case{Dtype::kF8E5M2, 0x7d, 0x7fe00000}, Case{Dtype::kF8E5M2, 0x7e, 0x7fc00000},
        Case{Dtype::kF8E5M2, 0x7f, 0x7fe00000}, Case{Dtype::kF8E5M2, 0xfe, 0xffc00000},
        Case{Dtype::kF8E4M3Fnuz, 0x80, 0x7f800001}, Case{Dtype::kF8E5M2Fnuz, 0x80, 0x7f800001}}) {
    const auto code = static_cast<std::byte>(tested.code);
    EXPECT_EQ(
        expand_codes({.dtype = tested.from, .shape = &shape, .payload = {&code, 1}, .scale = {}},
                     Dtype::kF32),
        std::vector<std::uint32_t>{tested.bits});
  }
}

TEST(Expand, F64IsRoundedToF32First) {
  // 1 + 2^-8 + 2^-40: rounded at once it would go up to the next BF16; by way of F32 it is a tie.
  const std::vector<double> values = {1 + 0x1p-8 + 0x1p-40, -2.5, 1e300};
  const Shape shape = {values.size()};
  EXPECT_EQ(expand_codes({.dtype = Dtype::kF64,
                          .shape = &shape,
                          .payload = std::as_bytes(std::span(values)),
                          .scale = {}},
                         Dtype::kBf16),
            (std::vector<std::uint32_t>{0x3f80, 0xc020, 0x7f80}));
}

struct GridCase {
  std::string name;
  Shape shape;
  Granularity granularity;
  std::uint64_t block_rows;
  std::uint64_t block_columns;
  std::size_t scale_count;
  /// Index of the scale of element [matrix][row][column], matrix over all leading dimensions.
  std::size_t (*scale_of)(std::size_t matrix, std::size_t row, std::size_t column);
};

class ExpandGranularity : public ::testing::TestWithParam<GridCase> {};

TEST_P(ExpandGranularity, TakesTheRightScaleForEachElement) {
  const GridCase& grid = GetParam();
  const std::size_t columns = grid.shape.empty() ? 1 : grid.shape.back();
  const std::size_t rows = grid.shape.size() < 2 ? 1 : grid.shape[grid.shape.size() - 2];
  std::size_t elements = 1;
  for (const std::uint64_t dimension : grid.shape) {
    elements *= dimension;
  }
  std::mt19937 random(7);
  std::vector<std::byte> payload(elements);
  for (std::byte& code : payload) {
    code = static_cast<std::byte>(random());
  }
  std::vector<float> scale(grid.scale_count);
  for (std::size_t at = 0; at < scale.size(); ++at) {
    scale[at] = 0.01F * static_cast<float>(at + 1);
  }
  std::vector<std::uint8_t> scale_codes(grid.scale_count);
  for (std::size_t at = 0; at < scale_codes.size(); ++at) {
    scale_codes[at] = static_cast<std::uint8_t>(110 + at);
  }
  ExpandSource source = {.dtype = Dtype::kF8E4M3,
                         .shape = &grid.shape,
                         .payload = payload,
                         .scale = scale,
                         .granularity = grid.granularity,
                         .block_rows = grid.block_rows,
                         .block_columns = grid.block_columns};
  ExpandSource coded = source;
  coded.scale = {};
  coded.scale_codes = scale_codes;
  for (const Dtype to : kTargets) {
    const std::vector<std::uint32_t> results = expand_codes(source, to);
    const std::vector<std::uint32_t> coded_results = expand_codes(coded, to);
    for (std::size_t at = 0; at < elements; ++at) {
      const std::size_t index =
          grid.scale_of(at / columns / rows, at / columns % rows, at % columns);
      const auto code = std::to_integer<std::uint32_t>(payload[at]);
      expect_element(results[at], Dtype::kF8E4M3, code, scale[index], to);
      expect_element(coded_results[at], Dtype::kF8E4M3, code,
                     std::ldexp(1.0F, static_cast<int>(index) + 110 - 127), to);
    }
    ASSERT_FALSE(HasFailure());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ExpandGranularity,
    ::testing::Values(
        GridCase{"Tensor",
                 {5, 7},
                 Granularity::kTensor,
                 0,
                 0,
                 1,
                 [](auto, auto, auto) -> std::size_t { return 0; }},
        GridCase{"TensorOfScalar",
                 {},
                 Granularity::kTensor,
                 0,
                 0,
                 1,
                 [](auto, auto, auto) -> std::size_t { return 0; }},
        GridCase{"TensorOfConvolution",
                 {4, 3, 2, 2},
                 Granularity::kTensor,
                 0,
                 0,
                 1,
                 [](auto, auto, auto) -> std::size_t { return 0; }},
        GridCase{"TensorLong",
                 {64, 100},
                 Granularity::kTensor,
                 0,
                 0,
                 1,
                 [](auto, auto, auto) -> std::size_t { return 0; }},
        GridCase{"Row",
                 {5, 7},
                 Granularity::kRow,
                 0,
                 0,
                 5,
                 [](auto, auto row, auto) -> std::size_t { return row; }},
        GridCase{"RowLong",
                 {3, 2100},
                 Granularity::kRow,
                 0,
                 0,
                 3,
                 [](auto, auto row, auto) -> std::size_t { return row; }},
        GridCase{"RowOfVector",
                 {6},
                 Granularity::kRow,
                 0,
                 0,
                 6,
                 [](auto, auto, auto column) -> std::size_t { return column; }},
        GridCase{"RowOfExperts",
                 {3, 5, 7},
                 Granularity::kRow,
                 0,
                 0,
                 15,
                 [](auto matrix, auto row, auto) -> std::size_t { return matrix * 5 + row; }},
        GridCase{"RowPerExpert",
                 {3, 5, 7},
                 Granularity::kRow,
                 0,
                 0,
                 3,
                 [](auto matrix, auto, auto) -> std::size_t { return matrix; }},
        GridCase{"RowOfConvolution",
                 {4, 3, 2, 2},
                 Granularity::kRow,
                 0,
                 0,
                 4,
                 [](auto matrix, auto, auto) -> std::size_t { return matrix / 3; }},
        GridCase{"Column",
                 {5, 7},
                 Granularity::kColumn,
                 0,
                 0,
                 7,
                 [](auto, auto, auto column) -> std::size_t { return column; }},
        GridCase{"ColumnOfExperts",
                 {3, 5, 7},
                 Granularity::kColumn,
                 0,
                 0,
                 21,
                 [](auto matrix, auto, auto column) -> std::size_t { return matrix * 7 + column; }},
        GridCase{"ColumnShared",
                 {3, 5, 7},
                 Granularity::kColumn,
                 0,
                 0,
                 7,
                 [](auto, auto, auto column) -> std::size_t { return column; }},
        GridCase{
            "BlockExact",
            {8, 12},
            Granularity::kBlock,
            4,
            3,
            8,
            [](auto, auto row, auto column) -> std::size_t { return row / 4 * 4 + column / 3; }},
        GridCase{
            "BlockEdges",
            {9, 13},
            Granularity::kBlock,
            4,
            3,
            15,
            [](auto, auto row, auto column) -> std::size_t { return row / 4 * 5 + column / 3; }},
        GridCase{"BlockLargerThanWeight",
                 {5, 7},
                 Granularity::kBlock,
                 128,
                 128,
                 1,
                 [](auto, auto, auto) -> std::size_t { return 0; }},
        GridCase{"BlockWideTiles",
                 {9, 7},
                 Granularity::kBlock,
                 4,
                 128,
                 3,
                 [](auto, auto row, auto) -> std::size_t { return row / 4; }},
        GridCase{"BlockOfExperts",
                 {2, 9, 13},
                 Granularity::kBlock,
                 4,
                 3,
                 30,
                 [](auto matrix, auto row, auto column) -> std::size_t {
                   return (matrix * 3 + row / 4) * 5 + column / 3;
                 }},
        GridCase{"GroupsAlongRows",
                 {4, 96},
                 Granularity::kBlock,
                 1,
                 32,
                 12,
                 [](auto, auto row, auto column) -> std::size_t { return row * 3 + column / 32; }}),
    [](const auto& tested) { return tested.param.name; });

TEST(Expand, UnalignedPayloadAndTarget) {
  std::vector<std::byte> payload(2 * 16 + 1);
  for (std::size_t at = 0; at < 16; ++at) {
    const std::uint16_t half = static_cast<std::uint16_t>(0x3c00 + at);
    std::memcpy(payload.data() + 1 + 2 * at, &half, sizeof half);
  }
  std::vector<std::byte> target(4 * 16 + 1);
  const Shape shape = {16};
  expand({.dtype = Dtype::kF16,
          .shape = &shape,
          .payload = std::span<const std::byte>(payload).subspan(1),
          .scale = {}},
         Dtype::kF32, std::span(target).subspan(1));
  for (std::size_t at = 0; at < 16; ++at) {
    float value = 0;
    std::memcpy(&value, target.data() + 1 + 4 * at, sizeof value);
    EXPECT_EQ(value, 1.0F + static_cast<float>(at) / 1024);
  }
}

TEST(Expand, EmptyWeight) {
  const Shape shape = {0, 7};
  expand({.dtype = Dtype::kF8E4M3, .shape = &shape, .payload = {}, .scale = {}}, Dtype::kBf16, {});
}

TEST(CanExpand, FloatsToComputeDtypesOnly) {
  for (const Dtype from :
       {Dtype::kF8E4M3, Dtype::kF8E5M2Fnuz, Dtype::kF16, Dtype::kBf16, Dtype::kF32, Dtype::kF64}) {
    EXPECT_TRUE(can_expand(from, Dtype::kBf16));
    EXPECT_TRUE(can_expand(from, Dtype::kF16));
    EXPECT_TRUE(can_expand(from, Dtype::kF32));
    EXPECT_FALSE(can_expand(from, Dtype::kF64));
    EXPECT_FALSE(can_expand(from, Dtype::kI32));
  }
  for (const Dtype from : {Dtype::kI8, Dtype::kU8, Dtype::kI64, Dtype::kBool, Dtype::kF8E8M0,
                           Dtype::kF4, Dtype::kC64}) {
    EXPECT_FALSE(can_expand(from, Dtype::kF32));
  }
}

}  // namespace
}  // namespace trash_panda::runtime
