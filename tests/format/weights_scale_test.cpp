#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/weights.h"

#include "scale_order.h"
#include "scale_swizzle.h"
#include "scale_values.h"
#include "support/checkpoint_builder.h"
#include "support/reference_dequantize.h"

namespace trash_panda::format {
namespace {

using testing::bytes_of;
using ::testing::ElementsAre;
using testing::SafetensorsBuilder;
using testing::TempDir;

std::vector<float> decode(Dtype dtype, const std::string& bytes) {
  std::vector<float> values(bytes.size() * 8 / dtype_bits(dtype));
  decode_scale(dtype, std::as_bytes(std::span(bytes)), values);
  return values;
}

TEST(DecodeScale, DecodesEveryHalfAsTheReferenceDoes) {
  std::vector<std::uint16_t> codes(0x10000);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::uint16_t>(i);
  }
  const std::string bytes = bytes_of(codes);
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    const std::vector<float> values = decode(dtype, bytes);
    ASSERT_EQ(values.size(), codes.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float wanted = testing::decode_element(dtype, bytes.data() + 2 * i);
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(values[i])
                                     : std::bit_cast<std::uint32_t>(values[i]) ==
                                           std::bit_cast<std::uint32_t>(wanted))
          << dtype_name(dtype) << " code " << i << ": " << values[i] << " not " << wanted;
    }
  }
}

TEST(DecodeScale, DecodesExponentsIncludingTheSubnormalOne) {
  const std::vector<float> values = decode(Dtype::kF8E8M0, std::string("\x00\x01\x7F\x80\xFE", 5));
  EXPECT_EQ(values, (std::vector<float>{0x1p-127F, 0x1p-126F, 1.0F, 2.0F, 0x1p127F}));
  EXPECT_TRUE(std::isnan(decode(Dtype::kU8, "\xFF").at(0)));
}

TEST(DecodeScale, RoundsDoublesOnce) {
  EXPECT_EQ(decode(Dtype::kF64, bytes_of(std::vector<double>{1.0 + 0x1p-25, 0.1})),
            (std::vector<float>{1.0F, 0.1F}));
}

TEST(Unswizzle, PutsEveryElementWhereTheTileLayoutSays) {
  const Shape grid = {200, 6};
  const Shape stored_shape = swizzled_shape(grid);
  ASSERT_EQ(stored_shape, (Shape{256, 8}));
  // Built the other way round, as comfy-kitchen's to_blocked does with views and transposes:
  // [2, 128, 2, 4] → [2, 2, 128, 4] → each tile as [4, 32, 4] → [32, 4, 4].
  std::vector<float> stored;
  for (std::size_t tile_row = 0; tile_row < 2; ++tile_row) {
    for (std::size_t tile_column = 0; tile_column < 2; ++tile_column) {
      for (std::size_t row = 0; row < 32; ++row) {
        for (std::size_t quarter = 0; quarter < 4; ++quarter) {
          for (std::size_t column = 0; column < 4; ++column) {
            stored.push_back(static_cast<float>((tile_row * 128 + quarter * 32 + row) * 100 +
                                                tile_column * 4 + column));
          }
        }
      }
    }
  }
  for (std::size_t row = 0; row < 200; ++row) {
    for (std::size_t column = 0; column < 6; ++column) {
      ASSERT_EQ(stored[swizzled_index(row, column, stored_shape[1])],
                static_cast<float>(row * 100 + column));
    }
  }
}

TEST(SwizzledShape, PadsToWholeTiles) {
  EXPECT_EQ(swizzled_shape({128, 4}), (Shape{128, 4}));
  EXPECT_EQ(swizzled_shape({129, 5}), (Shape{256, 8}));
  EXPECT_EQ(swizzled_shape({64, 3}), (Shape{128, 4}));
}

Checkpoint open(const std::filesystem::path& path) {
  auto checkpoint = Checkpoint::open(path);
  EXPECT_TRUE(checkpoint) << checkpoint.error().to_string();
  return *std::move(checkpoint);
}

TEST(ReadScale, CropsEachGridOfAStack) {
  const TempDir folder;
  std::vector<float> stored;
  for (int i = 0; i < 2 * 3 * 2; ++i) {
    stored.push_back(static_cast<float>(i));
  }
  SafetensorsBuilder()
      .add("s", Dtype::kF32, {2, 3, 2}, bytes_of(stored))
      .write(folder / "model.safetensors");
  const WeightScale scale{.tensor_index = 0,
                          .granularity = Granularity::kBlock,
                          .shape = {2, 2, 1},
                          .block_shape = {128, 128},
                          .transform = ScaleTransform::kCrop};
  const auto values = read_scale(open(folder / "model.safetensors"), scale);
  ASSERT_TRUE(values) << values.error().to_string();
  EXPECT_EQ(*values, (std::vector<float>{0, 2, 6, 8}));
  EXPECT_EQ(scale_size_bytes(scale), 16U);
}

/// A scale whose stored shape, dtype and transform differ from its canonical form.
struct PartCase {
  std::string name;
  Shape stored_shape;
  Shape shape;
  ScaleTransform transform;
};

class ReadScalePart : public ::testing::TestWithParam<PartCase> {};

/// The value at each stored place is told by its index, in F32 exactly.
TEST_P(ReadScalePart, IsAnyRunOfTheWhole) {
  const PartCase& part = GetParam();
  const TempDir folder;
  std::uint64_t stored_count = 1;
  for (const std::uint64_t size : part.stored_shape) {
    stored_count *= size;
  }
  std::vector<float> stored(stored_count);
  std::iota(stored.begin(), stored.end(), 0.0F);
  SafetensorsBuilder()
      .add("s", Dtype::kF32, part.stored_shape, bytes_of(stored))
      .write(folder / "model.safetensors");
  const Checkpoint checkpoint = open(folder / "model.safetensors");
  const WeightScale scale{.tensor_index = 0,
                          .granularity = Granularity::kBlock,
                          .shape = part.shape,
                          .block_shape = {1, 16},
                          .transform = part.transform};
  const std::uint64_t rows = part.shape[part.shape.size() - 2];
  const std::uint64_t columns = part.shape.back();
  const std::uint64_t grids = part.shape.size() == 3 ? part.shape[0] : 1;
  const std::uint64_t stored_columns = part.stored_shape.back();
  const std::uint64_t stored_rows = part.stored_shape[part.stored_shape.size() - 2];
  std::vector<float> expected;
  for (std::uint64_t row = 0; row < grids * rows; ++row) {
    for (std::uint64_t column = 0; column < columns; ++column) {
      const std::uint64_t from =
          part.transform == ScaleTransform::kSwizzled
              ? swizzled_index(row, column, stored_columns)
              : (row / rows * stored_rows + row % rows) * stored_columns + column;
      expected.push_back(stored[from]);
    }
  }
  EXPECT_EQ(read_scale(checkpoint, scale).value(), expected);
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    const std::uint64_t first = random() % expected.size();
    std::vector<float> run(random() % (expected.size() - first) + 1);
    ASSERT_TRUE(read_scale_part(checkpoint, scale, first, run));
    ASSERT_TRUE(std::ranges::equal(run, std::span(expected).subspan(first, run.size())))
        << first << " " << run.size();
  }
  EXPECT_TRUE(read_scale_part(checkpoint, scale, expected.size(), {}));
}

// The large ones take several steps; rows of 3,000 tiles are longer than a step.
INSTANTIATE_TEST_SUITE_P(
    Transforms, ReadScalePart,
    ::testing::Values(PartCase{"AsItIs", {700, 1000}, {700, 1000}, ScaleTransform::kNone},
                      PartCase{"Crop", {608, 1000}, {603, 993}, ScaleTransform::kCrop},
                      PartCase{"CropStack", {50, 8, 16}, {50, 3, 9}, ScaleTransform::kCrop},
                      PartCase{"CropWide", {3, 300'000}, {2, 299'999}, ScaleTransform::kCrop},
                      PartCase{"Swizzled", {512, 1020}, {400, 1017}, ScaleTransform::kSwizzled},
                      PartCase{"SwizzledNarrow", {3200, 4}, {3100, 3}, ScaleTransform::kSwizzled},
                      PartCase{
                          "SwizzledWide", {256, 6000}, {130, 5999}, ScaleTransform::kSwizzled}),
    [](const auto& test) { return test.param.name; });

TEST(ReadScaleBytes, GivesTheCodesAsTheyAreStored) {
  const TempDir folder;
  std::string stored(256 * 8, '\0');
  for (std::size_t i = 0; i < stored.size(); ++i) {
    stored[i] = static_cast<char>(i * 31 + i / 256);
  }
  SafetensorsBuilder().add("s", Dtype::kU8, {256, 8}, stored).write(folder / "model.safetensors");
  const Checkpoint checkpoint = open(folder / "model.safetensors");
  WeightScale scale{.tensor_index = 0,
                    .granularity = Granularity::kBlock,
                    .shape = {200, 6},
                    .block_shape = {1, 32},
                    .dtype = Dtype::kF8E8M0,
                    .transform = ScaleTransform::kSwizzled};
  std::string expected;
  for (std::uint64_t row = 0; row < 200; ++row) {
    for (std::uint64_t column = 0; column < 6; ++column) {
      expected += stored[swizzled_index(row, column, 8)];
    }
  }
  ASSERT_EQ(scale_size_bytes(scale), expected.size());
  std::string codes(expected.size() - 3, '\0');
  ASSERT_TRUE(read_scale_bytes(checkpoint, scale, 3, std::as_writable_bytes(std::span(codes))));
  EXPECT_EQ(codes, expected.substr(3));
  scale.dtype = Dtype::kF32;
  std::string floats(4 * expected.size() - 7, '\0');  // From within an element to within another.
  ASSERT_TRUE(read_scale_bytes(checkpoint, scale, 5, std::as_writable_bytes(std::span(floats))));
  EXPECT_EQ(floats, bytes_of(decode(Dtype::kU8, expected)).substr(5, floats.size()));
}

/// The reads for a whole grid: none larger than it may be, and together each stored element once.
void expect_bounded_reads(const Shape& stored_shape, const Shape& shape, ScaleTransform transform,
                          std::size_t reads_max) {
  const TensorRecord stored{.name = "s",
                            .dtype = Dtype::kU8,
                            .shape = stored_shape,
                            .file_index = 0,
                            .offset_bytes = 0,
                            .size_bytes = stored_shape[0] * stored_shape[1]};
  const WeightScale scale{.tensor_index = 0,
                          .granularity = Granularity::kBlock,
                          .shape = shape,
                          .block_shape = {1, 32},
                          .transform = transform};
  const std::vector<ScaleRead> reads = ScaleOrder(stored, scale).reads(0, shape[0] * shape[1]);
  std::uint64_t total = 0;
  std::uint64_t previous_end = 0;
  for (const ScaleRead& read : reads) {
    EXPECT_LE(read.stored_end - read.stored_begin, kScaleReadElementsMax);
    EXPECT_GE(read.stored_begin, previous_end);
    previous_end = read.stored_end;
    total += read.stored_end - read.stored_begin;
  }
  EXPECT_LE(previous_end, stored.size_bytes);
  EXPECT_LE(total, stored.size_bytes);
  EXPECT_LE(reads.size(), reads_max);
}

TEST(ScaleOrder, ReadsEachStoredElementOnceInBoundedRuns) {
  expect_bounded_reads({256, 100'000}, {250, 99'998}, ScaleTransform::kSwizzled, 98);
  expect_bounded_reads({1280, 2048}, {1279, 2047}, ScaleTransform::kSwizzled, 10);
  expect_bounded_reads({128'000, 4}, {127'999, 3}, ScaleTransform::kSwizzled, 2);
  expect_bounded_reads({16, 600'000}, {13, 599'999}, ScaleTransform::kCrop, 39);
  expect_bounded_reads({1000, 1000}, {999, 993}, ScaleTransform::kCrop, 4);
}

TEST(ScaleOrder, ReadsPartsOfASingleRowOnly) {
  const TensorRecord stored{.name = "s",
                            .dtype = Dtype::kU8,
                            .shape = {128, 100'000},
                            .file_index = 0,
                            .offset_bytes = 0,
                            .size_bytes = 12'800'000};
  const WeightScale scale{.tensor_index = 0,
                          .granularity = Granularity::kBlock,
                          .shape = {128, 100'000},
                          .block_shape = {1, 32},
                          .transform = ScaleTransform::kSwizzled};
  const std::vector<ScaleRead> reads = ScaleOrder(stored, scale).reads(300'005, 300'009);
  ASSERT_EQ(reads.size(), 1U);
  EXPECT_EQ(reads[0].stored_begin, 512U);  // The tiles of columns 4 to 7 and 8 to 11.
  EXPECT_EQ(reads[0].stored_end, 3 * 512U);
}

TEST(SpecialScaleValues, NamesEachKindOnce) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kUnset = std::numeric_limits<float>::lowest();
  const auto special = [](std::vector<float> scales) { return special_scale_values(scales); };
  EXPECT_THAT(special({1.0F, 1e-40F, 448.0F}), ElementsAre());
  EXPECT_THAT(special({1.0F, 0.0F}), ElementsAre("zero"));
  EXPECT_THAT(special({-0.0F}), ElementsAre("zero"));
  EXPECT_THAT(special({0.0F, -1.0F, -2.0F}), ElementsAre("negative", "zero"));
  EXPECT_THAT(special({-kInfinity, 1.0F}), ElementsAre("infinite"));
  EXPECT_THAT(special({kUnset}), ElementsAre("unset (the lowest F32)"));
  EXPECT_THAT(special({0.0F, -1.0F, kUnset, kInfinity, kNan}),
              ElementsAre("NaN", "infinite", "unset (the lowest F32)", "negative", "zero"));
  EXPECT_THAT(special({}), ElementsAre());
}

}  // namespace
}  // namespace trash_panda::format
