// Every bf16 and f32 tensor of the shared cases, through the exponent code and back.

#include <filesystem>

#include <gtest/gtest.h>

#include "trash_panda/format/checkpoint.h"

#include "format/support/exponent_samples.h"

namespace trash_panda::format {
namespace {

const std::filesystem::path kExponentCases =
    std::filesystem::path(TP_SOURCE_DIR) / "../shared/cases";

void expect_round_trip(Dtype dtype, const testing::Bytes& raw) {
  const testing::Bytes expected =
      testing::encode(dtype, raw, **find_exponent_implementation("portable"));
  for (const ExponentImplementation& implementation : exponent_implementations()) {
    if (!implementation.is_supported) {
      continue;
    }
    SCOPED_TRACE(implementation.name);
    const testing::Bytes coded = testing::encode(dtype, raw, implementation);
    testing::Bytes decoded(raw.size());
    EXPECT_TRUE(decode_exponents(dtype, coded, decoded, {.implementation = &implementation}));
    EXPECT_EQ(decoded, raw);
    EXPECT_TRUE(coded == expected) << "implementations differ";
  }
}

TEST(ExponentCases, EveryTensorComesBack) {
  if (!std::filesystem::is_directory(kExponentCases)) {
    GTEST_SKIP() << "no " << kExponentCases;
  }
  std::size_t bf16_count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kExponentCases)) {
    const auto checkpoint = Checkpoint::open(entry.path() / "in");
    if (!checkpoint) {
      continue;  // One of the broken ones, which other tests are about.
    }
    for (std::size_t i = 0; i < checkpoint->tensors().size(); ++i) {
      const TensorRecord& tensor = checkpoint->tensors()[i];
      // Some are sparse files of terabytes.
      if (!has_exponent_code(tensor.dtype) || tensor.size_bytes > (1U << 20U)) {
        continue;
      }
      SCOPED_TRACE(entry.path().filename().string() + " " + std::string(tensor.name));
      testing::Bytes raw(tensor.size_bytes);
      ASSERT_TRUE(checkpoint->read_tensor(i, raw));
      expect_round_trip(tensor.dtype, raw);
      bf16_count += tensor.dtype == Dtype::kBf16 ? 1 : 0;
    }
  }
  EXPECT_GE(bf16_count, 50U);
}

}  // namespace
}  // namespace trash_panda::format
