// The zstd code: arrays and back, golden files, and code with one defect each.
//
// To write the good ones anew: TP_UPDATE_GOLDEN=1 tests_format --gtest_filter='ZstdGolden.*', then
// tests/format/golden/zstd_code_bad/make.py.

#include "trash_panda/format/zstd_code.h"

#include <cstdlib>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/chunk_code.h"

#include "base/support/temp_dir.h"
#include "format/support/checkpoint_builder.h"
#include "format/support/coded_sample.h"

namespace trash_panda::format {
namespace {

using testing::must;
using testing::random_bytes;
using testing::read_text;

std::span<const std::byte> view_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string encode_array(Dtype dtype, const std::string& raw) {
  std::string coded(zstd_coded_bytes_max(raw.size()), '\x7f');
  coded.resize(must(encode_zstd(dtype, view_of(raw), std::as_writable_bytes(std::span(coded)))));
  return coded;
}

Result<std::string> decode_array(Dtype dtype, const std::string& coded, std::uint64_t raw_bytes) {
  std::string raw(raw_bytes, '\x7f');
  std::span<std::byte> rest = std::as_writable_bytes(std::span(raw));
  TP_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> offsets,
                      chunk_offsets(TensorCoding::kZstd, dtype, view_of(coded), raw_bytes));
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::span<std::byte> target =
        rest.first(std::min<std::size_t>(rest.size(), kZstdChunkBytes));
    TP_RETURN_IF_ERROR(decode_zstd_chunk(
        dtype, view_of(coded).subspan(offsets[i], offsets[i + 1] - offsets[i]), target));
    rest = rest.subspan(target.size());
  }
  return raw;
}

/// Elements whose upper byte repeats.
std::string like_integers(std::size_t count, std::size_t width) {
  std::string raw = random_bytes(count * width, 1);
  for (std::size_t i = 0; i < count; ++i) {
    raw[i * width + width - 1] = static_cast<char>(i / 7 % 5);
  }
  return raw;
}

TEST(ZstdCode, GivesEveryArrayBack) {
  for (const Dtype dtype : {Dtype::kF8E4M3, Dtype::kBool, Dtype::kF4, Dtype::kI16, Dtype::kBf16,
                            Dtype::kF32, Dtype::kI64, Dtype::kC64}) {
    const std::size_t width = std::max(1U, dtype_bits(dtype) / 8);
    for (const std::size_t count :
         {std::size_t{1}, std::size_t{2}, std::size_t{63}, kZstdChunkBytes / width - 1,
          kZstdChunkBytes / width, kZstdChunkBytes / width + 1, 2 * kZstdChunkBytes / width}) {
      SCOPED_TRACE(fmt::format("{} of {}", count, dtype_name(dtype)));
      for (const std::string& raw : {like_integers(count, width), random_bytes(count * width, 2),
                                     std::string(count * width, '\0')}) {
        const std::string coded = encode_array(dtype, raw);
        EXPECT_LE(coded.size(), zstd_coded_bytes_max(raw.size()));
        EXPECT_TRUE(must(decode_array(dtype, coded, raw.size())) == raw);
      }
    }
  }
}

TEST(ZstdCode, OfNothingIsNothing) {
  EXPECT_EQ(encode_array(Dtype::kI16, ""), "");
  EXPECT_EQ(must(decode_array(Dtype::kI16, "", 0)), "");
}

TEST(ZstdCode, OfPiecesIsThatOfTheArray) {
  const std::string raw = like_integers(1'300'000, 2);
  EXPECT_TRUE(encode_array(Dtype::kI16, raw) ==
              encode_array(Dtype::kI16, raw.substr(0, kZstdChunkBytes)) +
                  encode_array(Dtype::kI16, raw.substr(kZstdChunkBytes)));
}

TEST(ZstdCode, TakesLessByPlanes) {
  const std::string raw = like_integers(500'000, 2);
  EXPECT_LT(encode_array(Dtype::kI16, raw).size(), raw.size() * 6 / 10);
  EXPECT_GT(encode_array(Dtype::kU8, raw).size(), raw.size() * 7 / 10);
}

TEST(ZstdCode, OfNoiseIsAHeadLonger) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kF32}) {
    const std::string raw = random_bytes(3 * kZstdChunkBytes, 3);
    EXPECT_EQ(encode_array(dtype, raw).size(), raw.size() + 3 * kZstdChunkHeadBytes);
  }
}

TEST(ZstdCode, IsNeverTrusted) {
  const std::string raw = like_integers(3000, 2);
  const std::string coded = encode_array(Dtype::kI16, raw);
  std::mt19937 random(4);
  std::size_t refused_count = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string damaged = coded;
    // Heads more often than what is behind them.
    const std::size_t at = random() % (i % 2 == 0 ? 64 : damaged.size());
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << random() % 8));
    damaged.resize(random() % 16 == 0 ? random() % damaged.size() : damaged.size());
    damaged.shrink_to_fit();  // So that a sanitizer sees the first byte behind it.
    const Result<std::string> decoded = decode_array(Dtype::kI16, damaged, raw.size());
    refused_count += decoded ? 0U : 1U;
  }
  EXPECT_GT(refused_count, 2000U);
}

std::filesystem::path zstd_golden_path(std::string_view folder) {
  return std::filesystem::path(TP_SOURCE_DIR) / "tests/format/golden" / folder;
}

struct ZstdSample {
  std::string name;  ///< Its first word is the dtype.
  Dtype dtype;
  std::string raw;
};

std::vector<ZstdSample> zstd_samples() {
  return {{"bf16", Dtype::kBf16, testing::gaussian_bf16(300, 1)},
          {"bf16_noise", Dtype::kBf16, random_bytes(140, 2)},
          {"u8", Dtype::kU8, like_integers(700, 1)},
          {"i64", Dtype::kI64, like_integers(90, 8)}};
}

/// Other versions of libzstd make other frames of the same elements.
TEST(ZstdGolden, IsDecoded) {
  for (const ZstdSample& sample : zstd_samples()) {
    SCOPED_TRACE(sample.name);
    const auto raw_path = zstd_golden_path("zstd_code") / (sample.name + ".raw");
    const auto coded_path = zstd_golden_path("zstd_code") / (sample.name + ".coded");
    if (std::getenv("TP_UPDATE_GOLDEN") != nullptr) {
      std::filesystem::create_directories(raw_path.parent_path());
      testing::write_text(raw_path, sample.raw);
      testing::write_text(coded_path, encode_array(sample.dtype, sample.raw));
    }
    const std::string raw = read_text(raw_path);
    EXPECT_TRUE(must(decode_array(sample.dtype, read_text(coded_path), raw.size())) == raw);
  }
}

struct ZstdDefect {
  std::string name;
  std::string message;
};

std::vector<ZstdDefect> zstd_defects() {
  return {{"bytes_follow", "does not hold"},
          {"chunk_past_end", "says that it has"},
          {"chunk_size_odd", "says that it has"},
          {"chunk_size_too_small", "says that it has"},
          {"frame_cut", "is not one frame"},
          {"frame_damaged", "is not one frame"},
          {"frame_followed_by_another", "is not one frame"},
          {"frame_of_nothing", "instead of 300"},
          {"plane_count_other", "has 4 planes"},
          {"plane_empty", "has 0 bytes for plane 1"},
          {"plane_too_large", "has 301 bytes for plane 0 of 300"},
          {"plane_too_many", "has 1 bytes for plane 2"},
          {"raw_bytes_0", "holds 0 bytes"},
          {"raw_bytes_odd", "holds 599 bytes"},
          {"raw_bytes_other", "plane 0 of 299"},
          {"raw_bytes_too_many", "holds 1048578 bytes"},
          {"reserved_byte_set", "reserved"},
          {"reserved_byte_set_behind", "reserved"},
          {"truncated", "does not hold"},
          {"truncated_head", "does not hold"}};
}

TEST(ZstdGolden, DefectsAreRefused) {
  for (const ZstdDefect& defect : zstd_defects()) {
    SCOPED_TRACE(defect.name);
    const Result<std::string> refused = decode_array(
        Dtype::kBf16, read_text(zstd_golden_path("zstd_code_bad") / (defect.name + ".coded")), 600);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(refused.error().message(), ::testing::HasSubstr(defect.message));
  }
}

TEST(ZstdGolden, EveryDefectOfTheFolderIsTested) {
  std::set<std::string> expected = {"make.py"};
  for (const ZstdDefect& defect : zstd_defects()) {
    expected.insert(defect.name + ".coded");
  }
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(zstd_golden_path("zstd_code_bad"))) {
    found.insert(entry.path().filename());
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace trash_panda::format
