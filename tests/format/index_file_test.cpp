#include "index_file.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/support/padded_text.h"

namespace trash_panda::format {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<IndexFile> parse_index(std::string_view text) {
  return IndexFile::parse(testing::padded_text(text), text.size());
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

/// Positions in the index of names that come from a shard, in their order; -1 for none.
std::vector<int> positions(const IndexFile& index, std::uint32_t shard,
                           const std::vector<std::string_view>& names) {
  IndexCursor cursor(index);
  std::vector<int> found;
  for (const std::string_view name : names) {
    const std::optional<std::size_t> entry = cursor.find(shard, name);
    found.push_back(entry ? static_cast<int>(*entry) : -1);
  }
  return found;
}

TEST(IndexCursor, FindsEntriesInWhateverOrderTheTensorsCome) {
  const Result<IndexFile> index =
      parse_index(R"({"weight_map":{"a":"1","b":"2","c":"1","d":"2","e":"1","f":"1","g":"1",)"
                  R"("h":"1","i":"1"}})");
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_THAT(positions(*index, 0, {"a", "c", "e", "f", "g", "h", "i"}),
              ElementsAre(0, 2, 4, 5, 6, 7, 8));
  EXPECT_THAT(positions(*index, 0, {"i", "h", "g", "f", "e", "c", "a"}),
              ElementsAre(8, 7, 6, 5, 4, 2, 0));
  EXPECT_THAT(positions(*index, 0, {"c", "f", "h", "a", "e", "g", "i"}),
              ElementsAre(2, 5, 7, 0, 4, 6, 8));
  EXPECT_THAT(positions(*index, 1, {"d", "b"}), ElementsAre(3, 1));
}

TEST(IndexCursor, FindsNothingThatIsNotListedInTheShard) {
  const Result<IndexFile> index = parse_index(R"({"weight_map":{"a":"1","b":"2","c":"1"}})");
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_THAT(positions(*index, 0, {"b", "x", "a", "x", "c", "c2"}),
              ElementsAre(-1, -1, 0, -1, 2, -1));
  EXPECT_THAT(positions(*index, 1, {"a", "b", "c"}), ElementsAre(-1, 1, -1));
}

}  // namespace
}  // namespace trash_panda::format
