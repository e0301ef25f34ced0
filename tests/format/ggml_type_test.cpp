#include "trash_panda/format/ggml_type.h"

#include <cstdint>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/format/tensor_record.h"

namespace trash_panda::format {
namespace {

struct Expected {
  std::uint32_t id;
  std::string_view name;
  std::uint64_t elements;
  std::uint64_t bytes;
};

/// Blocks by their parts: scales and minima, then the codes, high bits apart, sums last.
const std::vector<Expected> kExpected = {
    {0, "F32", 1, 4},
    {1, "F16", 1, 2},
    {2, "Q4_0", 32, 2 + 32 / 2},
    {3, "Q4_1", 32, 2 + 2 + 32 / 2},
    {6, "Q5_0", 32, 2 + 4 + 32 / 2},
    {7, "Q5_1", 32, 2 + 2 + 4 + 32 / 2},
    {8, "Q8_0", 32, 2 + 32},
    {9, "Q8_1", 32, 2 + 2 + 32},
    {10, "Q2_K", 256, 2 + 2 + 256 / 16 + 256 / 4},
    {11, "Q3_K", 256, 2 + 12 + 256 / 4 + 256 / 8},
    {12, "Q4_K", 256, 2 + 2 + 12 + 256 / 2},
    {13, "Q5_K", 256, 2 + 2 + 12 + 256 / 2 + 256 / 8},
    {14, "Q6_K", 256, 2 + 256 / 16 + 256 / 2 + 256 / 4},
    {15, "Q8_K", 256, 4 + 256 + 256 / 8},
    {16, "IQ2_XXS", 256, 2 + 256 / 4},
    {17, "IQ2_XS", 256, 2 + 256 / 4 + 256 / 32},
    {18, "IQ3_XXS", 256, 2 + 256 / 4 + 256 / 8},
    {19, "IQ1_S", 256, 2 + 256 / 8 + 256 / 16},
    {20, "IQ4_NL", 32, 2 + 32 / 2},
    {21, "IQ3_S", 256, 2 + 256 / 4 + 256 / 32 + 256 / 8 + 256 / 64},
    {22, "IQ2_S", 256, 2 + 256 / 4 + 256 / 16},
    {23, "IQ4_XS", 256, 2 + 2 + 256 / 64 + 256 / 2},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 256 / 8 + 256 / 16 + 256 / 32},
    {30, "BF16", 1, 2},
    {34, "TQ1_0", 256, 2 + 4 * 13},
    {35, "TQ2_0", 256, 2 + 256 / 4},
    {39, "MXFP4", 32, 1 + 32 / 2},
    {40, "NVFP4", 64, 64 / 16 + 64 / 2},
    {41, "Q1_0", 128, 2 + 128 / 8},
    {42, "Q2_0", 64, 2 + 64 / 4},
};

TEST(FindGgmlType, KnowsTheTypesInUse) {
  for (const Expected& expected : kExpected) {
    SCOPED_TRACE(expected.name);
    const GgmlType* type = find_ggml_type(expected.id);
    ASSERT_NE(type, nullptr);
    EXPECT_EQ(type->id, expected.id);
    EXPECT_EQ(type->name, expected.name);
    EXPECT_EQ(type->block_elements, expected.elements);
    EXPECT_EQ(type->block_bytes, expected.bytes);
    // Plain types are numbers of the same name and width; all others are no numbers at all.
    EXPECT_EQ(type->dtype.has_value(), expected.elements == 1);
    if (type->dtype) {
      EXPECT_EQ(dtype_name(*type->dtype), expected.name);
      EXPECT_EQ(dtype_bits(*type->dtype), 8 * expected.bytes);
    }
  }
}

TEST(FindGgmlType, KnowsNoOthers) {
  std::size_t found = 0;
  for (std::uint32_t id = 0; id < 1000; ++id) {
    found += find_ggml_type(id) != nullptr ? 1U : 0U;
    EXPECT_FALSE(find_ggml_type(id) != nullptr && !removed_ggml_type(id).empty()) << id;
  }
  EXPECT_EQ(found, kExpected.size());
  EXPECT_EQ(find_ggml_type(UINT32_MAX), nullptr);
  EXPECT_EQ(removed_ggml_type(31), "Q4_0_4_4");
  EXPECT_EQ(removed_ggml_type(43), "");
}

TEST(GgmlBlock, IsNoTypeOfSafetensors) {
  EXPECT_EQ(parse_dtype(dtype_name(Dtype::kGgmlBlock)), std::nullopt);
  EXPECT_FALSE(is_fp8(Dtype::kGgmlBlock));
  EXPECT_FALSE(is_plain_float(Dtype::kGgmlBlock));
  EXPECT_DEATH(static_cast<void>(dtype_bits(Dtype::kGgmlBlock)), "kGgmlBlock");
}

TEST(TypeName, SaysWhatBlocksTheyAre) {
  TensorRecord record{.name = "w",
                      .dtype = Dtype::kGgmlBlock,
                      .shape = {2, 256},
                      .file_index = 0,
                      .offset_bytes = 0,
                      .size_bytes = 288,
                      .ggml_type = find_ggml_type(12)};
  EXPECT_EQ(type_name(record), "Q4_K");
  EXPECT_EQ(element_count(record), 512U);
  record.dtype = Dtype::kBf16;
  record.ggml_type = nullptr;
  record.shape = {};
  EXPECT_EQ(type_name(record), "BF16");
  EXPECT_EQ(element_count(record), 1U);
}

}  // namespace
}  // namespace trash_panda::format
