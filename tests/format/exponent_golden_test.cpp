// Arrays and their exponent code, byte for byte, and code with one defect each.
//
// To write the good ones anew: TP_UPDATE_GOLDEN=1 tests_format --gtest_filter='ExponentGolden.*',
// then tests/format/golden/exponent_code_bad/make.py.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/support/exponent_samples.h"

namespace trash_panda::format {
namespace {

using testing::Bytes;
using testing::encode;
using testing::width_of;

std::filesystem::path code_golden_path() {
  return std::filesystem::path(TP_SOURCE_DIR) / "tests/format/golden/exponent_code";
}
std::filesystem::path code_bad_path() {
  return std::filesystem::path(TP_SOURCE_DIR) / "tests/format/golden/exponent_code_bad";
}

Bytes read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(static_cast<const void*>(bytes.data())), std::ssize(bytes));
}

/// Numbers that are the same everywhere.
class Sequence {
 public:
  unsigned operator()() {
    state_ = state_ * 1'664'525U + 1'013'904'223U;
    return state_ >> 12U;
  }

 private:
  std::uint32_t state_ = 1;
};

/// Exponents fall off by halves from 124, as those of weights do; every 128th is anything.
Bytes like_weights(Dtype dtype, std::size_t count) {
  Sequence next;
  return testing::elements_of(dtype, count, [&, n = 0U]() mutable {
    const unsigned rest = next() & 0x807fU;
    const unsigned exponent = 124U - static_cast<unsigned>(std::countr_zero(next() | 1U << 16U));
    return rest | (++n % 128 == 100 ? next() % 256 : exponent) << 7U;
  });
}

Bytes like_noise(Dtype dtype, std::size_t count) {
  Sequence next;
  return testing::elements_of(dtype, count, [&] { return next() & 0xffffU; });
}

struct Golden {
  std::string name;
  Dtype dtype;
  Bytes raw;
};

std::vector<Golden> goldens() {
  return {{"bf16", Dtype::kBf16, like_weights(Dtype::kBf16, 256)},
          {"bf16_two_tiles", Dtype::kBf16, like_weights(Dtype::kBf16, 2048 + 70)},
          {"bf16_raw", Dtype::kBf16, like_noise(Dtype::kBf16, 70)},
          {"f32_two_tiles", Dtype::kF32, like_weights(Dtype::kF32, 2048 + 70)}};
}

TEST(ExponentGolden, IsEncodedByteForByteAndDecoded) {
  for (const Golden& golden : goldens()) {
    SCOPED_TRACE(golden.name);
    const auto raw_path = code_golden_path() / (golden.name + ".raw");
    const auto coded_path = code_golden_path() / (golden.name + ".coded");
    if (std::getenv("TP_UPDATE_GOLDEN") != nullptr) {
      write_bytes(raw_path, golden.raw);
      write_bytes(coded_path,
                  encode(golden.dtype, golden.raw, **find_exponent_implementation("portable")));
    }
    const Bytes coded = read_bytes(coded_path);
    EXPECT_EQ(read_bytes(raw_path), golden.raw);
    for (const ExponentImplementation& implementation : exponent_implementations()) {
      if (!implementation.is_supported) {
        continue;
      }
      SCOPED_TRACE(implementation.name);
      EXPECT_EQ(encode(golden.dtype, golden.raw, implementation), coded);
      Bytes decoded(golden.raw.size());
      EXPECT_TRUE(
          decode_exponents(golden.dtype, coded, decoded, {.implementation = &implementation}));
      EXPECT_EQ(decoded, golden.raw);
    }
  }
}

struct ExponentDefect {
  std::string name;  ///< Of the file, without ".coded".
  std::string message;
};

std::vector<ExponentDefect> exponent_defects() {
  return {
      {"bytes_follow", "64 bytes follow the code of 256 elements"},
      {"chunk_past_end", "to come"},
      {"chunk_size_not_of_its_escapes", "has escapes for"},
      {"chunk_size_odd", "has escapes for"},
      {"chunk_size_too_large", "says that it takes"},
      {"chunk_size_too_small", "says that it takes"},
      {"element_count_0", "says 0 elements"},
      {"element_count_65537", "says 65537 elements"},
      {"element_count_other", "a chunk of 255 elements"},
      {"escape_code_added", "has not the"},
      {"escape_count_too_large", "has not the"},
      {"escape_count_too_small", "has not the"},
      {"escapes_more_than_elements", "tile 0 of 256 elements says 257 escapes"},
      {"form_of_f32", "form 2, which BF16 has not"},
      {"form_unknown", "form 3, which BF16 has not"},
      {"literal_count_too_large", "has not the"},
      {"literal_count_too_small", "has not the"},
      {"literals_more_than_escapes", "of them literals"},
      {"reserved_byte_set", "reserved"},
      {"truncated", "to come"},
      {"truncated_head", "with 256 of 256 elements to come"},
  };
}

TEST(ExponentGolden, DefectsAreRefused) {
  for (const ExponentDefect& defect : exponent_defects()) {
    SCOPED_TRACE(defect.name);
    const Bytes coded = read_bytes(code_bad_path() / (defect.name + ".coded"));
    for (const ExponentImplementation& implementation : exponent_implementations()) {
      if (!implementation.is_supported) {
        continue;
      }
      SCOPED_TRACE(implementation.name);
      Bytes decoded(512);
      const Result<void> refused =
          decode_exponents(Dtype::kBf16, coded, decoded, {.implementation = &implementation});
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt);
      EXPECT_THAT(refused.error().message(), ::testing::HasSubstr(defect.message));
    }
  }
}

TEST(ExponentGolden, EveryDefectOfTheFolderIsTested) {
  std::set<std::string> expected = {"make.py"};
  for (const ExponentDefect& defect : exponent_defects()) {
    expected.insert(defect.name + ".coded");
  }
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(code_bad_path())) {
    found.insert(entry.path().filename());
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace trash_panda::format
