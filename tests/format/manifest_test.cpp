#include "trash_panda/format/manifest.h"

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "format/support/checkpoint_builder.h"
#include "format/support/golden.h"
#include "format/support/sample_pack.h"
#include "manifest_check.h"

namespace trash_panda::format {
namespace {

using testing::golden_path;
using ::testing::HasSubstr;
using testing::must;
using testing::read_text;
using testing::SamplePack;

/// A manifest of one shard with as many extents of as many tensors; checksums are made up.
Manifest make_manifest(std::size_t extent_count, std::size_t tensors_per_extent) {
  const std::string checksum(32, '0');
  const std::uint64_t extent_bytes = (tensors_per_extent * kTensorAlignment + 4095) / 4096 * 4096;
  Manifest manifest{.generator = "test",
                    .source_path = "model",
                    .source_fingerprint = "f",
                    .source_files = {},
                    .page_bytes = 4096,
                    .shards = {{.name = "disk-00001.safetensors",
                                .size_bytes = 4096 + extent_count * extent_bytes,
                                .header_bytes = 4096,
                                .header_checksum = checksum}},
                    .extents = {},
                    .aliases = {},
                    .stored_aliases = {},
                    .left_out = {},
                    .plan_checksum = checksum};
  for (std::size_t e = 0; e < extent_count; ++e) {
    PackedExtent extent{.name = fmt::format("model.layers.{}", e),
                        .tier = Tier::kDisk,
                        .shard_index = 0,
                        .offset_bytes = 4096 + e * extent_bytes,
                        .stored_bytes = extent_bytes,
                        .raw_bytes = extent_bytes,
                        .codec = std::string(kCodecRaw),
                        .checksum = checksum,
                        .tensors = {}};
    for (std::size_t t = 0; t < tensors_per_extent; ++t) {
      extent.tensors.push_back(
          {.name = fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", e, t),
           .dtype = Dtype::kBf16,
           .shape = {8, 16},
           .offset_bytes = t * kTensorAlignment,
           .size_bytes = 256,
           .scale = {}});
    }
    manifest.extents.push_back(std::move(extent));
  }
  return manifest;
}

TEST(WriteManifest, IsReadBackAsTheSame) {
  SamplePack sample;
  Manifest manifest = must(sample.lay_out_pack());
  const std::string checksum = "0123456789abcdef0123456789abcdef";
  manifest.plan_checksum = checksum;
  for (PackedShard& shard : manifest.shards) {
    shard.header_checksum = checksum;
  }
  for (PackedExtent& extent : manifest.extents) {
    extent.checksum = checksum;
  }
  const std::string text = write_manifest(manifest);
  const Manifest read = must(parse_manifest(text, "manifest.json"));
  EXPECT_EQ(write_manifest(read), text);
  EXPECT_EQ(read.aliases, manifest.aliases);
  EXPECT_EQ(read.extents.size(), manifest.extents.size());
  EXPECT_EQ(read.extents[1].tensors[3].scale->block_shape, Shape({4, 4}));
}

TEST(WriteManifest, KeepsNamesThatNeedEscapes) {
  Manifest manifest = make_manifest(1, 1);
  const std::string name = "a \"quoted\" \\ name\n with é and 💡";
  manifest.extents[0].tensors[0].name = name;
  const Manifest read = must(parse_manifest(write_manifest(manifest), "manifest.json"));
  EXPECT_EQ(read.extents[0].tensors[0].name, name);
}

TEST(WriteManifest, ReplacesPathsThatAreNoUtf8) {
  Manifest manifest = make_manifest(1, 1);
  manifest.source_path = "/data/\xff.safetensors";
  EXPECT_TRUE(parse_manifest(write_manifest(manifest), "manifest.json"));
}

TEST(ParseManifest, FindsEverySingleBitFlip) {
  std::string text = read_text(golden_path() / "v1_raw.panda" / kManifestName);
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    const char kept = text[bit / 8];
    text[bit / 8] = static_cast<char>(kept ^ (1 << (bit % 8)));
    EXPECT_FALSE(parse_manifest(text, "manifest.json")) << "bit " << bit;
    text[bit / 8] = kept;
  }
}

TEST(ParseManifest, RefusesEveryShorterText) {
  const std::string text = read_text(golden_path() / "v1_raw.panda" / kManifestName);
  // The last line break alone may be missing: editors drop it, and the seal is before it.
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(parse_manifest(text.substr(0, size), "manifest.json")) << size;
  }
}

TEST(ParseManifest, IgnoresMembersThatItDoesNotKnow) {
  std::string text = write_manifest(make_manifest(1, 1));
  text.erase(text.rfind("  \"" + std::string(kManifestChecksumKey)));
  text.insert(text.find("  \"shards\""), "  \"mood\": {\"is\": [\"good\"]},\n");
  EXPECT_TRUE(parse_manifest(seal_manifest(text), "manifest.json"));
}

TEST(ParseManifest, TakesATensorUpToTheEndOfAHugeExtentAndNoByteMore) {
  Manifest manifest = make_manifest(1, 1);
  const std::uint64_t data_bytes = (1ULL << 60) - 4096;
  manifest.shards[0].size_bytes = 1ULL << 60;
  manifest.extents[0].stored_bytes = manifest.extents[0].raw_bytes = data_bytes;
  PackedTensor& tensor = manifest.extents[0].tensors[0];
  tensor.dtype = Dtype::kU8;
  tensor.offset_bytes = 256;
  tensor.shape = {tensor.size_bytes = data_bytes - 256};
  EXPECT_TRUE(parse_manifest(write_manifest(manifest), "manifest.json"));
  tensor.shape = {tensor.size_bytes = data_bytes - 255};
  EXPECT_FALSE(parse_manifest(write_manifest(manifest), "manifest.json"));
}

/// Work that grows with the square of the tensors would meet the test runner's time limit here.
TEST(ParseManifest, ReadsNinetyThousandTensors) {
  const Result<Manifest> parsed =
      parse_manifest(write_manifest(make_manifest(90, 1000)), "manifest.json");
  ASSERT_TRUE(parsed) << parsed.error().message();
  ASSERT_EQ(parsed->extents.size(), 90U);
  EXPECT_EQ(parsed->extents[89].tensors.size(), 1000U);
}

/// What a checkpoint can't be made of is no manifest.
class SourceOfManifest : public ::testing::Test {
 protected:
  void expect_refused(std::string_view what) const {
    const Result<void> checked = check_manifest(manifest_, "manifest.json");
    ASSERT_FALSE(checked);
    EXPECT_EQ(checked.error().code(), ErrorCode::kCorrupt);
    EXPECT_THAT(checked.error().message(), HasSubstr(what));
  }

  SamplePack sample_;
  Manifest manifest_ = must(sample_.write());
};

TEST_F(SourceOfManifest, HasNoNameTwice) {
  ASSERT_TRUE(check_manifest(manifest_, "manifest.json"));
  manifest_.extents[1].tensors[0].source.name = manifest_.extents[1].tensors[1].name;
  expect_refused("has two tensors named");
}

TEST_F(SourceOfManifest, HasNoReservedName) {
  manifest_.extents[1].tensors[0].source.name = "__metadata__";
  expect_refused("reserved");
  manifest_.extents[1].tensors[0].source.name.clear();
  manifest_.aliases.emplace("__metadata__", manifest_.extents[1].tensors[0].name);
  expect_refused("reserved");
}

TEST_F(SourceOfManifest, HasStoredAliasesOfOtherNames) {
  const std::string alias = manifest_.aliases.begin()->first;
  manifest_.stored_aliases.emplace(alias, 0);
  ASSERT_TRUE(check_manifest(manifest_, "manifest.json"));
  manifest_.extents[1].tensors[0].source.name = alias;
  expect_refused("has two tensors named");
}

TEST_F(SourceOfManifest, HasShapesOfTheSameBytes) {
  manifest_.extents[1].tensors[0].source.shape = Shape{999'999, 999};
  expect_refused("do not fill the shape");
}

TEST(ReadManifest, NamesAFolderThatIsNoPack) {
  const testing::TempDir dir;
  const Result<Manifest> read = read_manifest(dir.path());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kMissing);
  EXPECT_THAT(read.error().message(), HasSubstr("is not a pack"));
}

TEST(ReadManifest, NamesAMissingShard) {
  SamplePack sample;
  must(sample.write());
  std::filesystem::remove(sample.target() / "ram-00001.safetensors");
  const Result<Manifest> read = read_manifest(sample.target());
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), ErrorCode::kCorrupt);
  EXPECT_EQ(read.error().reason(), "missing_shard");
  EXPECT_THAT(read.error().message(), HasSubstr("ram-00001.safetensors"));
}

TEST(ReadManifest, NamesATruncatedAndAGrownShard) {
  SamplePack sample;
  must(sample.write());
  const std::filesystem::path shard = sample.target() / "disk-00001.safetensors";
  const std::uint64_t size_bytes = std::filesystem::file_size(shard);
  std::filesystem::resize_file(shard, size_bytes - 1);
  const Result<Manifest> cut = read_manifest(sample.target());
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().reason(), "truncated");
  EXPECT_THAT(cut.error().message(), HasSubstr(fmt::format("has {} bytes", size_bytes - 1)));
  std::filesystem::resize_file(shard, size_bytes + 1);
  const Result<Manifest> grown = read_manifest(sample.target());
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().reason(), "trailing");
}

}  // namespace
}  // namespace trash_panda::format
