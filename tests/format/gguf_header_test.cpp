#include "gguf_header.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/gguf_builder.h"

namespace trash_panda::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gguf_string;
using testing::GgufBuilder;
using ::testing::HasSubstr;
using testing::le;
using ::testing::Pair;
using testing::small_gguf;
using ::testing::UnorderedElementsAre;
namespace ggml = testing::ggml;
namespace gguf_value = testing::gguf_value;

Result<GgufHeader> parse_gguf(const std::string& file) {
  return parse_gguf_header(std::as_bytes(std::span(file)), file.size());
}

Result<GgufHeader> parse_gguf(const GgufBuilder& builder) {
  return parse_gguf(builder.file());
}

/// The message of a refusal, whose reason must be "gguf"; "accepted" if there is none.
template <class Source>
std::string gguf_verdict(const Source& source, ErrorCode code = ErrorCode::kCorrupt) {
  const Result<GgufHeader> header = parse_gguf(source);
  if (header) {
    return "accepted";
  }
  EXPECT_EQ(header.error().reason(), "gguf");
  EXPECT_EQ(header.error().code(), code);
  return header.error().message();
}

/// One F32 tensor "w" of 8 elements.
GgufBuilder one_weight() {
  return GgufBuilder().add_random("w", ggml::kF32, {8}, 32);
}

TEST(GgufHeader, TellsTensorsAndPlaces) {
  const std::string file = small_gguf(2).file();
  const Result<GgufHeader> header = parse_gguf(file);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->version, 3U);
  EXPECT_EQ(header->alignment_bytes, 32U);
  EXPECT_EQ(header->data_offset_bytes % 32, 0U);
  ASSERT_EQ(header->tensors.size(), 8U);
  const TensorRecord& embedding = header->tensors[0];
  EXPECT_EQ(embedding.name, "token_embd.weight");
  EXPECT_EQ(embedding.dtype, Dtype::kGgmlBlock);
  EXPECT_EQ(type_name(embedding), "Q8_0");
  EXPECT_THAT(embedding.shape, ElementsAre(10, 256));  // Outermost first, unlike in the file.
  EXPECT_EQ(embedding.offset_bytes, header->data_offset_bytes);
  EXPECT_EQ(embedding.size_bytes, 10U * 8 * 34);
  const TensorRecord& norm = header->tensors[1];
  EXPECT_EQ(norm.dtype, Dtype::kF32);
  EXPECT_EQ(norm.ggml_type, nullptr);
  EXPECT_EQ(norm.offset_bytes, header->data_offset_bytes + 2720);
  EXPECT_EQ(norm.size_bytes, 1024U);
  EXPECT_EQ(header->tensors.back().offset_bytes + 1024, file.size());
}

TEST(GgufHeader, KeepsWhatDescribesTheModel) {
  GgufBuilder builder = one_weight();
  builder.text("general.architecture", "llama")
      .key("general.file_type", gguf_value::kUint32, le<std::uint32_t>(15))
      .key("llama.block_count", gguf_value::kUint64, le<std::uint64_t>(32))
      .key("split.count", gguf_value::kUint16, le<std::uint16_t>(3))
      .key("split.tensors.count", gguf_value::kInt32, le<std::int32_t>(-1))
      .key("general.quality", gguf_value::kFloat32, le(0.5F))
      .key("general.measured", gguf_value::kFloat64, le(0.25))
      .key("general.good", gguf_value::kBool, std::string(1, '\1'))
      .key("general.level", gguf_value::kUint8, std::string(1, '\7'))
      .key("general.tags", gguf_value::kArray,
           le(gguf_value::kString) + le<std::uint64_t>(1) + gguf_string("text"))
      .text("general.broken", "\xff\xfe")
      .text("tokenizer.chat_template", "{{ bos }}")
      .number("llama.context_length", 4096);
  const Result<GgufHeader> header = parse_gguf(builder);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_THAT(header->metadata,
              UnorderedElementsAre(Pair("general.architecture", "llama"),
                                   Pair("general.file_type", "15"), Pair("llama.block_count", "32"),
                                   Pair("split.count", "3"), Pair("split.tensors.count", "-1"),
                                   Pair("general.quality", "0.5"), Pair("general.measured", "0.25"),
                                   Pair("general.good", "true"), Pair("general.level", "7")));
}

TEST(GgufHeader, ReadsVersionsTwoAndThree) {
  EXPECT_EQ(gguf_verdict(one_weight().version(2)), "accepted");
  EXPECT_EQ(gguf_verdict(one_weight().version(3)), "accepted");
  for (const std::uint32_t version : {0U, 1U, 4U}) {
    EXPECT_THAT(gguf_verdict(one_weight().version(version), ErrorCode::kUnsupported),
                HasSubstr(fmt::format("version {}", version)));
  }
  EXPECT_THAT(gguf_verdict(one_weight().version(0x03000000), ErrorCode::kUnsupported),
              HasSubstr("big-endian"));
}

TEST(GgufHeader, SaysWhatElseAFileIs) {
  EXPECT_THAT(gguf_verdict(std::string("FUGG") + std::string(60, '\0'), ErrorCode::kUnsupported),
              HasSubstr("not a GGUF file"));
  EXPECT_THAT(
      gguf_verdict(std::string("PK\x03\x04") + std::string(60, '\0'), ErrorCode::kUnsupported),
      HasSubstr("zip"));
  EXPECT_THAT(gguf_verdict(std::string("GG"), ErrorCode::kUnsupported), HasSubstr("GGUF"));
  EXPECT_THAT(gguf_verdict(std::string(), ErrorCode::kUnsupported), HasSubstr("GGUF"));
}

TEST(GgufHeader, RefusesEveryShortFile) {
  const std::string file = small_gguf(1).file();
  ASSERT_TRUE(parse_gguf(file));
  for (std::size_t size = 4; size < file.size(); ++size) {
    const Result<GgufHeader> header = parse_gguf(file.substr(0, size));
    ASSERT_FALSE(header) << size;
    EXPECT_EQ(header.error().reason(), "gguf");
    EXPECT_EQ(header.error().code(), ErrorCode::kCorrupt);
  }
}

TEST(GgufHeader, TellsTruncatedFromTrailing) {
  const std::string file = one_weight().file();
  EXPECT_THAT(gguf_verdict(file.substr(0, file.size() - 1)),
              AllOf(HasSubstr("truncated"), HasSubstr("\"w\""), HasSubstr("32 bytes"),
                    HasSubstr("has 31"), HasSubstr(fmt::format("{})", file.size() - 1))));
  EXPECT_THAT(gguf_verdict(file + "x"),
              AllOf(HasSubstr("1 trailing bytes"), HasSubstr("has 33"), HasSubstr("describes 32")));
  // The padding that some writers put after the last tensor is none.
  const std::string odd = GgufBuilder().add_random("w", ggml::kF32, {5}, 20).file();
  EXPECT_EQ(gguf_verdict(odd), "accepted");
  EXPECT_EQ(gguf_verdict(odd + std::string(12, '\0')), "accepted");
  EXPECT_THAT(gguf_verdict(odd + std::string(13, '\0')), HasSubstr("13 trailing bytes"));
}

TEST(GgufHeader, TakesFilesWithoutTensors) {
  const std::string file = GgufBuilder().text("general.architecture", "llama").file();
  ASSERT_NE(file.size() % 32, 0U);
  EXPECT_EQ(gguf_verdict(file), "accepted");
  const std::string padded = file + std::string(32 - file.size() % 32, '\0');
  EXPECT_EQ(gguf_verdict(padded), "accepted");
  EXPECT_THAT(gguf_verdict(padded + "x"), HasSubstr("1 trailing"));
}

TEST(GgufHeader, HoldsCountsAgainstTheFile) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 60;
  EXPECT_THAT(gguf_verdict(one_weight().counts(kHuge, 0)), HasSubstr(std::to_string(kHuge)));
  EXPECT_THAT(gguf_verdict(one_weight().counts(UINT64_MAX, 0)), HasSubstr("tensors"));
  EXPECT_THAT(gguf_verdict(one_weight().counts(1, kHuge)), HasSubstr("keys"));
  EXPECT_THAT(gguf_verdict(one_weight().counts(0, UINT64_MAX)), HasSubstr("keys"));
}

TEST(GgufHeader, HoldsLengthsAgainstTheFile) {
  const auto with_value = [](std::uint32_t type, const std::string& value) {
    return gguf_verdict(one_weight().key("tokenizer.x", type, value));
  };
  for (const std::uint64_t length : {std::uint64_t{1000}, std::uint64_t{1} << 62, UINT64_MAX}) {
    EXPECT_THAT(with_value(gguf_value::kString, le(length)), HasSubstr("\"tokenizer.x\""));
    for (const std::uint32_t element :
         {gguf_value::kUint8, gguf_value::kUint64, gguf_value::kString, gguf_value::kArray}) {
      EXPECT_THAT(with_value(gguf_value::kArray, le(element) + le(length)),
                  AllOf(HasSubstr("\"tokenizer.x\""), HasSubstr(std::to_string(length))));
    }
  }
  EXPECT_THAT(with_value(13, ""), HasSubstr("13 is no type"));
  EXPECT_THAT(with_value(gguf_value::kArray, le<std::uint32_t>(13) + le<std::uint64_t>(0)),
              HasSubstr("13 is no type"));
}

TEST(GgufHeader, PassesArraysOfAllTypes) {
  constexpr std::size_t kWidths[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  GgufBuilder builder = one_weight();
  for (std::uint32_t type = 0; type < std::size(kWidths); ++type) {
    if (kWidths[type] != 0) {
      builder.key(fmt::format("a.{}", type), gguf_value::kArray,
                  le(type) + le<std::uint64_t>(3) + std::string(3 * kWidths[type], '\x55'));
      builder.key(fmt::format("s.{}", type), type, std::string(kWidths[type], '\1'));
    }
  }
  builder.key("a.strings", gguf_value::kArray,
              le(gguf_value::kString) + le<std::uint64_t>(2) + gguf_string("") +
                  gguf_string(std::string(600'000, 'x')));
  builder.text("general.architecture", "last");
  const Result<GgufHeader> header = parse_gguf(builder);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_THAT(header->metadata, ElementsAre(Pair("general.architecture", "last")));
}

/// An array in an array, so many deep, around one empty array of bytes.
std::string nested_array(unsigned depth) {
  std::string value;
  for (unsigned i = 1; i < depth; ++i) {
    value += le(gguf_value::kArray) + le<std::uint64_t>(1);
  }
  return value + le(gguf_value::kUint8) + le<std::uint64_t>(0);
}

TEST(GgufHeader, LimitsArraysWithinArrays) {
  const auto nested = [](unsigned depth) {
    return one_weight().key("deep", gguf_value::kArray, nested_array(depth));
  };
  EXPECT_EQ(gguf_verdict(nested(8)), "accepted");
  EXPECT_THAT(gguf_verdict(nested(9), ErrorCode::kUnsupported), HasSubstr("\"deep\""));
  EXPECT_THAT(gguf_verdict(nested(100'000), ErrorCode::kUnsupported), HasSubstr("\"deep\""));
}

TEST(GgufHeader, RefusesKeysThatAreEmptyTwiceOrTooLong) {
  EXPECT_THAT(gguf_verdict(one_weight().number("", 1)), HasSubstr("empty"));
  EXPECT_THAT(gguf_verdict(one_weight().number("a", 1).number("b", 1).text("a", "")),
              AllOf(HasSubstr("\"a\""), HasSubstr("twice")));
  EXPECT_EQ(gguf_verdict(one_weight().number(std::string(65535, 'k'), 1)), "accepted");
  EXPECT_THAT(gguf_verdict(one_weight().number(std::string(65536, 'k'), 1)), HasSubstr("65536"));
  EXPECT_THAT(gguf_verdict(one_weight().number("\xff", 1)), HasSubstr("UTF-8"));
}

TEST(GgufHeader, ChecksTheAlignment) {
  for (const std::uint32_t alignment : {8U, 16U, 64U, 4096U}) {
    GgufBuilder builder;
    builder.alignment(alignment).add_random("a", ggml::kF32, {1}, 4);
    builder.add_random("b", ggml::kF32, {1}, 4);
    const Result<GgufHeader> header = parse_gguf(builder);
    ASSERT_TRUE(header) << header.error().message();
    EXPECT_EQ(header->alignment_bytes, alignment);
    EXPECT_EQ(header->data_offset_bytes % alignment, 0U);
    EXPECT_EQ(header->tensors[1].offset_bytes, header->data_offset_bytes + alignment);
  }
  for (const std::uint32_t alignment : {0U, 1U, 4U, 12U, 24U, 33U, UINT32_MAX}) {
    EXPECT_THAT(gguf_verdict(one_weight().number("general.alignment", alignment)),
                AllOf(HasSubstr("alignment"), HasSubstr(std::to_string(alignment))));
  }
  EXPECT_THAT(gguf_verdict(one_weight().key("general.alignment", gguf_value::kUint64,
                                            le<std::uint64_t>(32))),
              HasSubstr("alignment"));
}

TEST(GgufHeader, ChecksOffsets) {
  const auto two = [](std::uint64_t second_offset, std::size_t data_bytes) {
    return GgufBuilder()
        .describe("a", ggml::kF32, {8}, 0)
        .describe("b", ggml::kF32, {8}, second_offset)
        .append(std::string(data_bytes, '\1'));
  };
  EXPECT_EQ(gguf_verdict(two(32, 64)), "accepted");
  EXPECT_THAT(gguf_verdict(two(33, 65)), AllOf(HasSubstr("\"b\""), HasSubstr("alignment of 32")));
  EXPECT_THAT(gguf_verdict(two(0, 64)), AllOf(HasSubstr("overlaps"), HasSubstr("\"a\"")));
  EXPECT_THAT(gguf_verdict(two(64, 96)), AllOf(HasSubstr("\"b\""), HasSubstr("no tensor")));
  for (const std::uint64_t offset : {std::uint64_t{1} << 62, UINT64_MAX - 31}) {
    EXPECT_THAT(gguf_verdict(two(offset, 64)), AllOf(HasSubstr("truncated"), HasSubstr("\"b\"")));
  }
  const Result<GgufHeader> swapped = parse_gguf(GgufBuilder()
                                                    .describe("later", ggml::kF32, {8}, 32)
                                                    .describe("first", ggml::kF32, {8}, 0)
                                                    .append(std::string(64, '\1')));
  ASSERT_TRUE(swapped);
  EXPECT_EQ(swapped->tensors[0].name, "first");
}

TEST(GgufHeader, ChecksShapes) {
  const auto shaped = [](const Shape& shape, std::uint32_t type, std::size_t size_bytes) {
    return GgufBuilder().add_random("w", type, shape, size_bytes);
  };
  EXPECT_EQ(gguf_verdict(shaped({}, ggml::kF32, 4)), "accepted");
  EXPECT_EQ(gguf_verdict(shaped({2, 1, 2, 4}, ggml::kF16, 32)), "accepted");
  EXPECT_EQ(gguf_verdict(shaped({3, 0}, ggml::kF32, 0)), "accepted");
  EXPECT_THAT(gguf_verdict(shaped({1, 1, 1, 1, 1}, ggml::kF32, 4)),
              AllOf(HasSubstr("\"w\""), HasSubstr("5 dimensions")));
  EXPECT_EQ(gguf_verdict(shaped({3, 32}, ggml::kQ4_0, 54)), "accepted");
  // Rows are quantized one by one: 64 elements in all are not two blocks here.
  EXPECT_THAT(gguf_verdict(shaped({4, 16}, ggml::kQ4_0, 36)),
              AllOf(HasSubstr("\"w\""), HasSubstr("Q4_0 blocks of 32"), HasSubstr("[4, 16]")));
  EXPECT_THAT(gguf_verdict(shaped({}, ggml::kQ4_0, 18)), HasSubstr("Q4_0"));
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 32;
  EXPECT_THAT(gguf_verdict(shaped({kHalf, kHalf}, ggml::kF32, 4)), HasSubstr("2^64"));
  EXPECT_EQ(gguf_verdict(shaped({kHalf, kHalf, 0}, ggml::kF32, 0)), "accepted");
  EXPECT_THAT(gguf_verdict(shaped({kHalf / 4, kHalf}, ggml::kF32, 4)), HasSubstr("2^64"));
  EXPECT_THAT(gguf_verdict(shaped({kHalf / 4, kHalf}, ggml::kQ8_0, 4)), HasSubstr("truncated"));
}

TEST(GgufHeader, NamesTypesThatItDoesNotTake) {
  const auto typed = [](std::uint32_t type) {
    return gguf_verdict(GgufBuilder().add_random("w", type, {256}, 256), ErrorCode::kUnsupported);
  };
  EXPECT_THAT(typed(99), AllOf(HasSubstr("\"w\""), HasSubstr("99")));
  EXPECT_THAT(typed(UINT32_MAX), HasSubstr("4294967295"));
  EXPECT_THAT(typed(31), HasSubstr("Q4_0_4_4"));
}

TEST(GgufHeader, RefusesNamesThatAreThereTwice) {
  GgufBuilder builder = one_weight();
  builder.add_random("x", ggml::kF32, {8}, 32).add_random("w", ggml::kF32, {8}, 32);
  EXPECT_THAT(gguf_verdict(builder), AllOf(HasSubstr("\"w\""), HasSubstr("twice")));
  EXPECT_THAT(gguf_verdict(GgufBuilder().add_random("\xff", ggml::kF32, {8}, 32)),
              HasSubstr("UTF-8"));
}

/// A file that counts what is read of it.
struct CountedFile {
  std::string bytes;
  std::uint64_t end_bytes = 0;        ///< Of what was read.
  std::uint64_t piece_bytes_max = 0;  ///< The longest read.
};

Result<GgufHeader> read_counted(CountedFile& file, std::uint64_t file_size_bytes,
                                Checksum& checksum) {
  const ReadAt read_at = [&file](std::uint64_t offset, std::span<std::byte> target) {
    file.end_bytes = std::max(file.end_bytes, offset + target.size());
    file.piece_bytes_max = std::max<std::uint64_t>(file.piece_bytes_max, target.size());
    for (std::size_t i = 0; i < target.size(); ++i) {
      target[i] = offset + i < file.bytes.size() ? std::byte(file.bytes[offset + i]) : std::byte{};
    }
    return Result<void>();
  };
  return read_gguf_header(read_at, file_size_bytes, checksum);
}

TEST(GgufHeader, IsReadInPiecesAndWithoutTheData) {
  // 40,000 tensors of 16 GiB, behind a tokenizer of 2 MB.
  constexpr std::uint64_t kTensorBytes = std::uint64_t{1} << 34;
  GgufBuilder builder;
  std::string tokens = le(gguf_value::kString) + le<std::uint64_t>(100'000);
  for (std::size_t i = 0; i < 100'000; ++i) {
    tokens += gguf_string(fmt::format("token{}", i));
  }
  builder.key("tokenizer.ggml.tokens", gguf_value::kArray, tokens);
  for (std::uint64_t i = 0; i < 40'000; ++i) {
    builder.describe(fmt::format("blk.{}.w", i), ggml::kF16, {1 << 16, 1 << 17}, i * kTensorBytes);
  }
  CountedFile file{.bytes = builder.header()};
  const std::uint64_t header_bytes = (file.bytes.size() + 31) / 32 * 32;
  Checksum checksum;
  const Result<GgufHeader> header =
      read_counted(file, header_bytes + 40'000 * kTensorBytes, checksum);
  ASSERT_TRUE(header) << header.error().message();
  EXPECT_EQ(header->tensors.size(), 40'000U);
  EXPECT_EQ(header->tensors[39'999].offset_bytes, header_bytes + 39'999 * kTensorBytes);
  EXPECT_LE(file.piece_bytes_max, kGgufWindowBytes);
  EXPECT_LE(file.end_bytes, header_bytes + kGgufWindowBytes);
  // Each byte of the header once, none of the data.
  EXPECT_EQ(checksum.hex(), checksum_hex(std::as_bytes(std::span(file.bytes))));
}

TEST(GgufHeader, LimitsItsLength) {
  const auto with_string = [](std::uint64_t length) {
    CountedFile file{.bytes = GgufBuilder().key("x", gguf_value::kString, le(length)).header()};
    Checksum checksum;
    const std::uint64_t size_bytes = file.bytes.size() + length;
    const Result<GgufHeader> header = read_counted(file, size_bytes, checksum);
    return header ? "accepted" : header.error().message();
  };
  const std::uint64_t before = GgufBuilder().key("x", gguf_value::kString, le(0UL)).header().size();
  EXPECT_EQ(with_string(kGgufHeaderBytesMax - before), "accepted");
  EXPECT_THAT(with_string(kGgufHeaderBytesMax - before + 1), HasSubstr("limit"));
  EXPECT_THAT(with_string(std::uint64_t{1} << 50), HasSubstr("limit"));
}

TEST(GgufHeader, HandsOnWhatReadingSays) {
  const ReadAt failing = [](std::uint64_t, std::span<std::byte>) -> Result<void> {
    return std::unexpected(Error(ErrorCode::kFailed, "input/output error"));
  };
  Checksum checksum;
  const Result<GgufHeader> header = read_gguf_header(failing, 1000, checksum);
  ASSERT_FALSE(header);
  EXPECT_EQ(header.error().message(), "input/output error");
}

}  // namespace
}  // namespace trash_panda::format
