#include "index_file.h"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trash_panda::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<IndexFile> parse_index(std::string_view text) {
  return IndexFile::parse(std::string(text));
}

std::string index_verdict(std::string_view text) {
  const Result<IndexFile> index = parse_index(text);
  return index ? "accepted" : std::string(index.error().reason());
}

std::string index_message(std::string_view text) {
  const Result<IndexFile> index = parse_index(text);
  return index ? "accepted" : index.error().message();
}

std::string with_shard(std::string_view shard) {
  return fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", shard);
}

TEST(IndexFile, ReadsMapAndTotal) {
  Result<IndexFile> parsed =
      parse_index(R"({"metadata":{"total_size":168,"x":[1]},"weight_map":{"b":"2.safetensors",)"
                  R"("a":"1.safetensors","\u0063":"2.safetensors"},"more":{"y":null}})");
  ASSERT_TRUE(parsed) << parsed.error().message();
  const IndexFile index = std::move(*parsed);  // Names stay where they are.
  EXPECT_THAT(index.shards(), ElementsAre("1.safetensors", "2.safetensors"));
  EXPECT_EQ(index.total_size(), 168);
  ASSERT_EQ(index.entries().size(), 3U);
  EXPECT_EQ(index.entries()[0].tensor, "b");
  EXPECT_EQ(index.entries()[0].shard_index, 1U);
  EXPECT_EQ(index.entries()[1].shard_index, 0U);
  EXPECT_EQ(index.find("c"), 2U);
  EXPECT_FALSE(index.find("d"));
}

TEST(IndexFile, NeedsNoMetadata) {
  EXPECT_EQ(index_verdict(R"({"weight_map":{}})"), "accepted");
  EXPECT_EQ(index_verdict(R"({"metadata":{},"weight_map":{}})"), "accepted");
  EXPECT_EQ(index_verdict(R"({"metadata":null,"weight_map":{}})"), "accepted");
  EXPECT_EQ(index_verdict(R"({"metadata":{"total_size":"1"},"weight_map":{}})"), "accepted");
}

TEST(IndexFile, RefusesWhatIsNoIndex) {
  for (const std::string_view text :
       {"", "{", "[]", "null", "{}", R"({"metadata":{}})", R"({"weight_map":[]})",
        R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":null}})", R"({"weight_map":{"a":"b"})",
        R"({"weight_map":{}} x)", R"({"weight_map":{},"x":[1,]})"}) {
    EXPECT_EQ(index_verdict(text), "index") << text;
  }
  EXPECT_THAT(index_message("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("LFS"));
}

TEST(IndexFile, RefusesDuplicates) {
  EXPECT_EQ(index_verdict(R"({"weight_map":{"a":"1","a":"2"}})"), "index_duplicate");
  EXPECT_EQ(index_verdict(R"({"weight_map":{"a":"1","\u0061":"1"}})"), "index_duplicate");
  EXPECT_EQ(index_verdict(R"({"weight_map":{},"weight_map":{}})"), "index_duplicate");
  EXPECT_THAT(index_message(R"({"weight_map":{"a.b":"1","a.b":"2"}})"), HasSubstr("\"a.b\""));
}

TEST(IndexFile, RefusesShardsOutsideTheFolder) {
  for (const std::string_view bad :
       {"../evil.safetensors", "/etc/x.safetensors", "a/../../x.safetensors", "..", "",
        R"(..\\x.safetensors)", R"(C:\\x.safetensors)", R"(a\u0000.safetensors)"}) {
    EXPECT_EQ(index_verdict(with_shard(bad)), "unsafe_path") << bad;
  }
  EXPECT_THAT(index_message(with_shard("../evil.safetensors")), HasSubstr("../evil.safetensors"));
  for (const std::string_view good : {"x.safetensors", "sub/x.safetensors", "..x.safetensors"}) {
    EXPECT_EQ(index_verdict(with_shard(good)), "accepted") << good;
  }
}

TEST(IndexFile, RefusesShardsOfOtherFormats) {
  const Result<IndexFile> index = parse_index(with_shard("model-00001-of-00002.bin"));
  ASSERT_FALSE(index);
  EXPECT_EQ(index.error().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(index.error().reason(), "unsupported_format");
  EXPECT_THAT(index.error().message(), HasSubstr(".bin"));
}

}  // namespace
}  // namespace trash_panda::format
