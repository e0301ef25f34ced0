#include "trash_panda/format/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/checkpoint_builder.h"

namespace trash_panda::format {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;

std::string le64(std::uint64_t value) {
  return bytes_of(std::vector<std::uint64_t>{value});
}

Result<std::uint64_t> header_size(const std::string& head, std::uint64_t file_size_bytes) {
  return read_header_size(std::as_bytes(std::span(head)), file_size_bytes);
}

/// Parses a header whose file has `data_bytes` of tensor data.
Result<SafetensorsHeader> parse_text(std::string_view text, std::uint64_t data_bytes) {
  return parse_header(text, kLengthFieldBytes + text.size() + data_bytes);
}

/// The reason why a header is refused; "accepted" if it is not.
std::string header_verdict(std::string_view text, std::uint64_t data_bytes = 4) {
  const Result<SafetensorsHeader> header = parse_text(text, data_bytes);
  return header ? "accepted" : std::string(header.error().reason());
}

std::string header_message(std::string_view text, std::uint64_t data_bytes = 4) {
  const Result<SafetensorsHeader> header = parse_text(text, data_bytes);
  return header ? "accepted" : header.error().message();
}

/// A header of one F32 tensor "a" of one element, with this as its entry.
std::string entry(std::string_view fields) {
  return fmt::format(R"({{"a":{}}})", fields);
}

constexpr std::string_view kGood = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";

TEST(ReadHeaderSize, TakesHeaderThatEndsWithTheFile) {
  const auto size = header_size(le64(92), 100);
  ASSERT_TRUE(size) << size.error().message();
  EXPECT_EQ(*size, 92U);
}

TEST(ReadHeaderSize, RefusesHeaderOneBytePastEndOfFile) {
  const auto size = header_size(le64(93), 100);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(size.error().reason(), "header_length");
  EXPECT_EQ(size.error().message(), "header of 93 bytes does not fit in a file of 100");
}

TEST(ReadHeaderSize, RefusesFilesWithoutWholeLengthField) {
  EXPECT_EQ(header_size("", 0).error().reason(), "too_short");
  EXPECT_EQ(header_size("1234567", 7).error().reason(), "too_short");
  EXPECT_TRUE(header_size(le64(0), 8));
}

TEST(ReadHeaderSize, LimitsHeaderLength) {
  constexpr std::uint64_t kTerabyte = 1'000'000'000'000;
  EXPECT_TRUE(header_size(le64(kHeaderBytesMax), kTerabyte));
  const auto size = header_size(le64(kHeaderBytesMax + 1), kTerabyte);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(size.error().reason(), "header_too_large");
  EXPECT_THAT(size.error().message(), HasSubstr("100000001"));
}

TEST(ReadHeaderSize, DoesNotWrapOnHugeLengths) {
  for (const std::uint64_t huge : {~0ULL, ~0ULL - 7, ~0ULL - 8, 1ULL << 63U}) {
    EXPECT_EQ(header_size(le64(huge), 100).error().reason(), "header_too_large") << huge;
  }
}

TEST(ReadHeaderSize, NamesOtherFormats) {
  const auto size = header_size("<!DOCTYPE html><html>", 5000);
  ASSERT_FALSE(size);
  EXPECT_EQ(size.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(size.error().reason(), "not_safetensors");
  EXPECT_THAT(size.error().message(), HasSubstr("HTML"));
}

TEST(ParseHeader, ReadsTensorsInTheOrderOfTheirData) {
  const std::string text = R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},)"
                           R"("__metadata__":{"format":"pt"},)"
                           R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}})";
  const auto header = parse_text(text, 16);
  ASSERT_TRUE(header) << header.error().message();
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].offset_bytes, kLengthFieldBytes + text.size());
  EXPECT_EQ(header->tensors[0].shape, Shape{});
  EXPECT_EQ(header->tensors[1].name, "b");
  EXPECT_EQ(header->tensors[1].dtype, Dtype::kBf16);
  EXPECT_EQ(header->tensors[1].shape, (Shape{2, 3}));
  EXPECT_EQ(header->tensors[1].offset_bytes, kLengthFieldBytes + text.size() + 4);
  EXPECT_EQ(header->tensors[1].size_bytes, 12U);
  EXPECT_EQ(header->metadata.at("format"), "pt");
}

TEST(ParseHeader, AcceptsWhatTheReferenceReaderAccepts) {
  EXPECT_EQ(header_verdict("{}", 0), "accepted");
  EXPECT_EQ(header_verdict(kGood), "accepted");
  EXPECT_EQ(header_verdict(std::string(" \n\t\r") + std::string(kGood)), "accepted");
  EXPECT_EQ(header_verdict(std::string(kGood) + " \n\t\r   "), "accepted");
  EXPECT_EQ(header_verdict(entry(R"(["F32",[1],[0,4]])")), "accepted");
  EXPECT_EQ(header_verdict(entry(R"({"dtype":"F32","x":[1.5,{"y":null}],"shape":[1],)"
                                 R"("data_offsets":[0,4],"z":-1e3})")),
            "accepted");
  EXPECT_EQ(header_verdict(R"({"__metadata__":null})", 0), "accepted");
  EXPECT_EQ(header_verdict(R"({"__metadata__":{}})", 0), "accepted");
}

TEST(ParseHeader, AcceptsEmptyTensorsAnywhere) {
  const std::string text = R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                           R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("f":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]}})";
  EXPECT_EQ(header_verdict(text), "accepted");
}

TEST(ParseHeader, KeepsNamesAsTheyAre) {
  const auto name_of = [](std::string_view written) {
    const auto header =
        parse_text(fmt::format(R"({{"{}":["U8",[1],[0,1]]}})", written), /*data_bytes=*/1);
    return header ? std::string(header->tensors.at(0).name) : header.error().message();
  };
  EXPECT_EQ(name_of(""), "");
  EXPECT_EQ(name_of("../../etc/passwd"), "../../etc/passwd");
  EXPECT_EQ(name_of(R"(a\u0000b)"), std::string("a\0b", 3));
  EXPECT_EQ(name_of(R"(\"\\\/\n)"), "\"\\/\n");
  EXPECT_EQ(name_of(R"(\ud83d\udc3c)"), "\U0001F43C");
  EXPECT_EQ(name_of("e\u0301"), "e\u0301");
  EXPECT_EQ(name_of(std::string(5000, 'n')), std::string(5000, 'n'));
}

TEST(ParseHeader, RefusesTextThatIsNoJson) {
  for (const std::string_view text : {"",
                                      " ",
                                      "{",
                                      "}",
                                      "{} x",
                                      "{},",
                                      "{}{}",
                                      "[]",
                                      "\"abc\"",
                                      "1",
                                      R"({"a":})",
                                      R"({"a" 1})",
                                      "{a:1}",
                                      "{/**/}",
                                      "\xef\xbb\xbf{}",
                                      R"({"__metadata__":{"a":"b",}})",
                                      R"({"__metadata__":{"a":"\ud800"}})",
                                      R"({"__metadata__":{"a":"\udc00\ud800"}})",
                                      R"({"__metadata__":{"a":"\x"}})",
                                      "{\"__metadata__\":{\"a\":\"\n\"}}",
                                      R"({"__metadata__":nul})",
                                      R"({"__metadata__":{"a":"b"} "c":{}})"}) {
    EXPECT_EQ(header_verdict(text, 0), "json") << text;
  }
  EXPECT_EQ(header_verdict(std::string("{}\0", 3), 0), "json");
  EXPECT_EQ(header_verdict("{\"\xff\":1}", 0), "utf8");
}

TEST(ParseHeader, ChecksFieldsThatItDoesNotUse) {
  const auto with_extra = [](std::string_view value) {
    return header_verdict(
        entry(fmt::format(R"({{"dtype":"F32","shape":[1],"x":{},"data_offsets":[0,4]}})", value)));
  };
  for (const std::string_view good : {"1", "-0", "0.5e-3", "true", "[]", "{}", R"([{"a":[""]}])"}) {
    EXPECT_EQ(with_extra(good), "accepted") << good;
  }
  for (const std::string_view bad :
       {"01", "+1", ".5", "1.", "1e", "tru", "nulll", "NaN", "[1,]", "[1 2]", R"(["a":1])",
        R"({"a":1,})", R"({1:2})", "[1,2", R"("\u12")", "1e999", R"("\ud800")"}) {
    EXPECT_EQ(with_extra(bad), "json") << bad;
  }
}

TEST(ParseHeader, LimitsNesting) {
  // The root and the entry are two levels; 127 are allowed in all.
  const auto nested = [](std::size_t levels) {
    return header_verdict(
        entry(fmt::format(R"({{"dtype":"F32","shape":[1],"x":{}{},"data_offsets":[0,4]}})",
                          std::string(levels, '['), std::string(levels, ']'))));
  };
  EXPECT_EQ(nested(125), "accepted");
  EXPECT_EQ(nested(126), "json");
  EXPECT_EQ(nested(1'000'000), "json");
}

TEST(ParseHeader, TakesOnlyPlainWholeNumbers) {
  const auto with_end = [](std::string_view number) {
    return header_verdict(
        entry(fmt::format(R"({{"dtype":"U8","shape":[4],"data_offsets":[0,{}]}})", number)));
  };
  EXPECT_EQ(with_end("4"), "accepted");
  for (const std::string_view other :
       {"-4", "-0", "4.0", "4e0", "18446744073709551616", "\"4\"", "null", "true", "[4]", "{}"}) {
    EXPECT_EQ(with_end(other), "schema") << other;
  }
  EXPECT_EQ(with_end("18446744073709551615"), "size_mismatch");
  for (const std::string_view broken : {"04", "+4", "4x", "4.", "-", "0x4"}) {
    EXPECT_EQ(with_end(broken), "json") << broken;
  }
}

TEST(ParseHeader, RefusesEntriesThatLackOrMixUpFields) {
  EXPECT_THAT(header_message(entry(R"({"shape":[1],"data_offsets":[0,4]})")),
              HasSubstr("\"dtype\""));
  EXPECT_THAT(header_message(entry(R"({"dtype":"F32","data_offsets":[0,4]})")),
              HasSubstr("\"shape\""));
  EXPECT_THAT(header_message(entry(R"({"dtype":"F32","shape":[1],"offsets":[0,4]})")),
              HasSubstr("\"data_offsets\""));
  for (const std::string_view bad :
       {"1", "null", "\"F32\"", "{}", "[]", R"(["F32",[1]])", R"(["F32",[1],[0,4],1])",
        R"({"dtype":"F32","shape":null,"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":["1"],"data_offsets":[0,4]})",
        R"({"dtype":1,"shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[0,4,4]})"}) {
    EXPECT_EQ(header_verdict(entry(bad)), "schema") << bad;
    EXPECT_THAT(header_message(entry(bad)), HasSubstr("tensor \"a\"")) << bad;
  }
}

TEST(ParseHeader, RefusesUnknownDtypesByName) {
  for (const std::string_view dtype : {"f32", "torch.float32", "F8_E4M3FN", "F128", ""}) {
    const auto header = parse_text(
        entry(fmt::format(R"({{"dtype":"{}","shape":[1],"data_offsets":[0,4]}})", dtype)), 4);
    ASSERT_FALSE(header);
    EXPECT_EQ(header.error().code(), ErrorCode::kUnsupported);
    EXPECT_EQ(header.error().reason(), "dtype");
    EXPECT_THAT(header.error().message(), HasSubstr(fmt::format("\"{}\"", dtype)));
  }
}

TEST(ParseHeader, RefusesDuplicates) {
  EXPECT_THAT(header_message(R"({"a":["U8",[2],[0,2]],"a":["U8",[2],[2,4]]})"), HasSubstr("\"a\""));
  for (const std::string_view twice :
       {R"({"a":["U8",[4],[0,4]],"a":["U8",[4],[0,4]]})",
        R"({"a":["U8",[4],[0,4]],"\u0061":["U8",[4],[0,4]]})",
        R"({"a":{"dtype":"F32","shape":[1],"dtype":"F32","data_offsets":[0,4]}})",
        R"({"a":{"dtype":"F32","shape":[1],"sh\u0061pe":[1],"data_offsets":[0,4]}})",
        R"({"__metadata__":{},"__metadata__":{},"a":["U8",[4],[0,4]]})",
        R"({"__metadata__":{"k":"1","k":"2"},"a":["U8",[4],[0,4]]})"}) {
    EXPECT_EQ(header_verdict(twice), "duplicate") << twice;
  }
}

TEST(ParseHeader, RefusesMetadataOtherThanStringsByKey) {
  for (const std::string_view value : {"3", "true", "null", "[]", "{}"}) {
    const std::string text =
        fmt::format(R"({{"__metadata__":{{"format":"pt","epoch":{}}}}})", value);
    EXPECT_EQ(header_verdict(text, 0), "metadata") << value;
    EXPECT_THAT(header_message(text, 0), HasSubstr("\"epoch\"")) << value;
  }
  for (const std::string_view value : {"[]", "1", "\"\"", "false"}) {
    const std::string text = fmt::format(R"({{"__metadata__":{}}})", value);
    EXPECT_EQ(header_verdict(text, 0), "metadata") << value;
    EXPECT_THAT(header_message(text, 0), HasSubstr("__metadata__")) << value;
  }
}

TEST(ParseHeader, RefusesDataThatIsNotCoveredExactly) {
  const auto two = [](std::string_view first, std::string_view second) {
    return fmt::format(R"({{"a":["U8",[4],{}],"b":["U8",[4],{}]}})", first, second);
  };
  EXPECT_EQ(header_verdict(two("[0,4]", "[4,8]"), 8), "accepted");
  EXPECT_EQ(header_verdict(two("[4,8]", "[0,4]"), 8), "accepted");
  EXPECT_THAT(header_message(two("[0,4]", "[5,9]"), 9), HasSubstr("1 bytes before tensor \"b\""));
  EXPECT_THAT(header_message(two("[1,5]", "[5,9]"), 9), HasSubstr("1 bytes before tensor \"a\""));
  EXPECT_THAT(header_message(two("[0,4]", "[3,7]"), 7),
              HasSubstr("tensor \"b\" at [3, 7) of the data overlaps tensor \"a\" at [0, 4)"));
  for (const auto& text : {two("[0,4]", "[5,9]"), two("[0,4]", "[3,7]"), two("[0,4]", "[0,4]"),
                           two("[4,0]", "[4,8]"), two("[0,4]", "[18446744073709551612,0]"),
                           two("[0,4]", "[18446744073709551611,18446744073709551615]")}) {
    EXPECT_EQ(header_verdict(text, 8), "offsets") << text;
  }
}

TEST(ParseHeader, TellsTruncatedFromTrailingWithBothSizes) {
  EXPECT_EQ(header_verdict(kGood, 3), "truncated");
  EXPECT_THAT(header_message(kGood, 3),
              HasSubstr("3 bytes of tensor data, its header describes 4"));
  EXPECT_EQ(header_verdict(kGood, 4), "accepted");
  EXPECT_EQ(header_verdict(kGood, 5), "trailing");
  EXPECT_THAT(header_message(kGood, 5), HasSubstr("1 trailing bytes"));
  EXPECT_EQ(header_verdict("{}", 1), "trailing");
}

TEST(ParseHeader, RefusesSizesThatDoNotMatchTheShape) {
  const std::string text = entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})");
  EXPECT_EQ(header_verdict(text), "size_mismatch");
  EXPECT_THAT(header_message(text),
              HasSubstr("tensor \"a\" of dtype F32 and shape [2] takes 8 bytes, but its offsets "
                        "[0, 4) span 4"));
}

TEST(ParseHeader, CutsShapesThatAreTooLongForALine) {
  std::string ones = "1";
  for (int i = 1; i < 2000; ++i) {
    ones += ",1";
  }
  const std::string message = header_message(
      entry(fmt::format(R"({{"dtype":"F32","shape":[{}],"data_offsets":[0,8]}})", ones)));
  EXPECT_THAT(message, HasSubstr("1, …] (2000 dimensions) takes 4 bytes"));
  EXPECT_LT(message.size(), 500);
}

TEST(ParseHeader, RefusesOverflowingShapes) {
  const auto shaped = [](std::string_view shape) {
    return entry(fmt::format(R"({{"dtype":"F32","shape":{},"data_offsets":[0,0]}})", shape));
  };
  EXPECT_EQ(header_verdict(shaped("[0,9223372036854775808,4]"), 0), "accepted");
  EXPECT_EQ(header_verdict(shaped("[9223372036854775808,4,0]"), 0), "overflow");
  // 2^59 * 32 bits are 2^64.
  EXPECT_EQ(header_verdict(shaped("[576460752303423487]"), 0), "size_mismatch");
  EXPECT_EQ(header_verdict(shaped("[576460752303423488]"), 0), "overflow");
  EXPECT_THAT(header_message(shaped("[576460752303423488]"), 0), HasSubstr("tensor \"a\""));
}

TEST(ParseHeader, CountsBitsOfSmallDtypes) {
  const auto f4 = [](std::string_view dtype, int count, int size) {
    return header_verdict(
        entry(fmt::format(R"({{"dtype":"{}","shape":[{}],"data_offsets":[0,{}]}})", dtype, count,
                          size)),
        static_cast<std::uint64_t>(size));
  };
  EXPECT_EQ(f4("F4", 6, 3), "accepted");
  EXPECT_EQ(f4("F4", 7, 4), "subbyte");
  EXPECT_EQ(f4("F6_E2M3", 4, 3), "accepted");
  EXPECT_EQ(f4("F6_E3M2", 8, 6), "accepted");
  EXPECT_EQ(f4("F6_E3M2", 2, 2), "subbyte");
}

TEST(ParseHeader, NeedsFileOfTheHeadersSize) {
  EXPECT_EQ(parse_header("{}", 10)->tensors.size(), 0U);
  EXPECT_EQ(parse_header("{}", 9).error().reason(), "header_length");
  EXPECT_EQ(parse_header("{}", 0).error().reason(), "header_length");
}

}  // namespace
}  // namespace trash_panda::format
