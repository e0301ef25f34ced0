#include "coded_size.h"

#include <gtest/gtest.h>

namespace trash_panda::plan {
namespace {

PlannedBlock block_of(std::uint64_t extent_bytes) {
  PlannedBlock block;
  block.stored_bytes = block.extent_bytes = extent_bytes;
  return block;
}

TEST(CodedSizeBytes, ExponentCodesSaveAThirdOfBf16) {
  EXPECT_EQ(coded_size_bytes(block_of(1'000'000), {.bf16_bytes = 1'000'000, .fp8_bytes = 0},
                             StorageForm::kExponent),
            680'000U);
  EXPECT_EQ(coded_size_bytes(block_of(1'000'000), {.bf16_bytes = 0, .fp8_bytes = 1'000'000},
                             StorageForm::kExponent),
            std::nullopt);
}

TEST(CodedSizeBytes, NothingBelowTwoPercentOfTheExtent) {
  // 62,500 bytes of bf16 save 20,000 of 1,000,000.
  EXPECT_EQ(coded_size_bytes(block_of(1'000'000), {.bf16_bytes = 62'500, .fp8_bytes = 0},
                             StorageForm::kExponent),
            980'000U);
  EXPECT_EQ(coded_size_bytes(block_of(1'000'000), {.bf16_bytes = 62'490, .fp8_bytes = 0},
                             StorageForm::kExponent),
            std::nullopt);
  EXPECT_EQ(coded_size_bytes(block_of(1'000'000), {.bf16_bytes = 0, .fp8_bytes = 119'000},
                             StorageForm::kZstd),
            std::nullopt);
  EXPECT_NE(coded_size_bytes(block_of(1'000'000), {.bf16_bytes = 0, .fp8_bytes = 120'000},
                             StorageForm::kZstd),
            std::nullopt);
}

TEST(DecodedBytes, AreToldByWhatIsSaved) {
  for (const std::uint64_t bf16_bytes : {62'500U, 99'999U, 500'001U, 999'999U}) {
    PlannedBlock block = block_of(1'000'000);
    EXPECT_EQ(decoded_bytes(block), 0U) << "it is raw";
    block.coded_bytes =
        coded_size_bytes(block, {.bf16_bytes = bf16_bytes, .fp8_bytes = 0}, StorageForm::kExponent)
            .value();
    block.form = StorageForm::kExponent;
    EXPECT_GE(decoded_bytes(block), bf16_bytes);
    EXPECT_LE(decoded_bytes(block), bf16_bytes + 4);
  }
}

}  // namespace
}  // namespace trash_panda::plan
