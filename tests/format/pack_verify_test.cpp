#include "trash_panda/format/pack_verify.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checksum.h"

#include "format/support/checkpoint_builder.h"
#include "format/support/golden.h"
#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::must;
using testing::read_text;
using testing::SamplePack;
using ::testing::StartsWith;

void flip_bit(const std::filesystem::path& path, std::size_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(file.get() ^ (1 << (bit % 8)));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(byte);
  ASSERT_TRUE(file.flush());
}

TEST(VerifyPack, ReadsEveryByteOfEveryShard) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  Progress last;
  const VerifyReport report = must(verify_pack(
      sample.target(), {.progress = [&](const Progress& progress) { last = progress; }}));
  EXPECT_THAT(report.mismatches, IsEmpty());
  EXPECT_EQ(report.extent_count, manifest.extents.size());
  EXPECT_EQ(report.verified_bytes, pack_size(manifest).total_bytes);
  EXPECT_EQ(last.done_bytes, last.total_bytes);
  EXPECT_EQ(last.total_bytes, pack_size(manifest).total_bytes);
}

TEST(VerifyPack, NamesTheExtentOfAFlippedBit) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  const PackedExtent& extent = manifest.extents[4];
  flip_bit(sample.target() / "disk-00001.safetensors", extent.offset_bytes * 8 + 3);
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre(StartsWith("disk-00001.safetensors: extent \"layers.3\" differs")));
}

TEST(VerifyPack, ReadsNoPlanOfAnyLength) {
  SamplePack sample;
  must(sample.write());
  // Sparse: takes no space on the drive, but would in memory.
  std::filesystem::resize_file(sample.target() / kPackPlanName, 70'000'000);
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre("plan.toml has 70000000 bytes, more than the 67108864 of any plan"));
}

TEST(VerifyPack, NamesAllThatDiffers) {
  SamplePack sample;
  must(sample.write());
  flip_bit(sample.target() / "base-00001.safetensors", 100);
  flip_bit(sample.target() / "gpu-00001.safetensors", (4096 + 700) * 8);
  testing::write_text(sample.target() / kPackPlanName, "# another plan\n");
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre(StartsWith("plan.toml differs"),
                          StartsWith("base-00001.safetensors: its header differs"),
                          StartsWith("gpu-00001.safetensors: extent \"layers.0\" differs")));
}

/// TP_FLIPS=10000 for as many; a thousand take about a second.
std::size_t flip_count() {
  const char* text = std::getenv("TP_FLIPS");
  return text == nullptr ? 1000 : std::stoul(text);
}

TEST(VerifyPack, FindsEverySampledBitFlipInEveryFile) {
  const testing::TempDir dir;
  std::filesystem::copy(testing::golden_path() / "v1_raw.panda", dir / "pack");
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 random(seed);
  std::vector<std::filesystem::path> files;
  std::vector<std::size_t> ends;  // Of each file, in bits of all files.
  for (const auto& entry : std::filesystem::directory_iterator(dir / "pack")) {
    files.push_back(entry.path());
    ends.push_back((ends.empty() ? 0 : ends.back()) + std::filesystem::file_size(files.back()) * 8);
  }
  for (std::size_t i = 0; i < flip_count(); ++i) {
    // A quarter of them in the small files, which bits of all files seldom hit.
    const std::size_t at = random() % ends.back();
    const std::size_t file =
        i % 4 == 0 ? random() % files.size()
                   : static_cast<std::size_t>(std::ranges::upper_bound(ends, at) - ends.begin());
    const std::size_t bit = random() % (std::filesystem::file_size(files[file]) * 8);
    flip_bit(files[file], bit);
    const Result<VerifyReport> report = verify_pack(dir / "pack", {});
    EXPECT_FALSE(report && report->mismatches.empty()) << files[file] << " bit " << bit;
    flip_bit(files[file], bit);
  }
  EXPECT_THAT(must(verify_pack(dir / "pack", {})).mismatches, IsEmpty());
}

TEST(VerifyPackQuick, ReadsHeadersPlanAndManifest) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  const VerifyOptions quick = {.depth = VerifyDepth::kQuick};
  const VerifyReport report = must(verify_pack(sample.target(), quick));
  EXPECT_THAT(report.mismatches, IsEmpty());
  EXPECT_EQ(report.extent_count, 0U);
  EXPECT_EQ(report.verified_bytes, manifest.shards.size() * 4096);
  flip_bit(sample.target() / "disk-00001.safetensors", manifest.extents[4].offset_bytes * 8);
  EXPECT_THAT(must(verify_pack(sample.target(), quick)).mismatches, IsEmpty());
  flip_bit(sample.target() / "ram-00001.safetensors", 100);
  EXPECT_THAT(must(verify_pack(sample.target(), quick)).mismatches,
              ElementsAre(StartsWith("ram-00001.safetensors: its header differs")));
  std::filesystem::resize_file(sample.target() / "gpu-00001.safetensors", 4096);
  EXPECT_THAT(must(verify_pack(sample.target(), quick)).mismatches,
              ::testing::Contains(StartsWith("gpu-00001.safetensors has 4096 bytes, but")));
}

TEST(VerifyPack, TellsAHeaderThatListsOtherTensorsThanTheManifest) {
  SamplePack sample;
  Manifest manifest = must(sample.write());
  const std::filesystem::path shard = sample.target() / manifest.shards.back().name;
  const std::string& name = manifest.extents.back().tensors.front().name;
  std::string text = read_text(shard);
  const std::size_t at = text.find(name);
  ASSERT_LT(at, manifest.shards.back().header_bytes);
  text[at] = 'X';
  testing::write_text(shard, text);
  // As if it had been written so: all checksums are right.
  manifest.shards.back().header_checksum =
      checksum_hex(std::as_bytes(std::span(text)).first(manifest.shards.back().header_bytes));
  testing::write_text(sample.target() / kManifestName, write_manifest(manifest));
  EXPECT_THAT(must(verify_pack(sample.target(), {})).mismatches,
              ElementsAre(AllOf(StartsWith(manifest.shards.back().name),
                                HasSubstr("does not list \"" + name + "\""))));
}

TEST(VerifyPack, NamesEveryExtentOfAMissingAndOfACutShardAndReadsTheOthers) {
  SamplePack sample;
  const Manifest manifest = must(sample.write());
  std::filesystem::remove(sample.target() / "base-00001.safetensors");
  const PackedExtent& cut = manifest.extents.back();
  const std::string cut_shard = manifest.shards[cut.shard_index].name;
  std::filesystem::resize_file(sample.target() / cut_shard, cut.offset_bytes);
  flip_bit(sample.target() / "gpu-00001.safetensors", 100);
  const VerifyReport report = must(verify_pack(sample.target(), {}));
  for (const PackedExtent& extent : manifest.extents) {
    const bool is_named =
        extent.shard_index == manifest.extents.front().shard_index || extent.name == cut.name;
    const auto line = HasSubstr(fmt::format("{}: extent \"{}\" can't be read",
                                            manifest.shards[extent.shard_index].name, extent.name));
    EXPECT_EQ(std::ranges::count_if(
                  report.mismatches,
                  [&](const std::string& text) { return ::testing::Value(text, line); }),
              is_named ? 1 : 0)
        << extent.name;
  }
  EXPECT_THAT(report.mismatches,
              ::testing::Contains(StartsWith("gpu-00001.safetensors: its header differs")));
}

class ComparePack : public ::testing::Test {
 protected:
  ComparePack() { manifest_ = must(sample_.write()); }

  [[nodiscard]] Result<VerifyReport> compare() {
    return compare_with_source(sample_.target(), sample_.checkpoint(), sample_.weights(), {});
  }

  /// Two weights, the same bytes whatever the shape of the first, and what else there is to be.
  static testing::SafetensorsBuilder plain(const Shape& shape,
                                           const std::vector<std::string>& more) {
    testing::SafetensorsBuilder builder;
    builder.add_random("a.weight", Dtype::kBf16, shape);
    builder.add_random("b.weight", Dtype::kF32, {3});
    for (const std::string& name : more) {
      builder.add(name, Dtype::kF32, {1}, testing::bytes_of(std::vector<float>{1}));
    }
    return builder;
  }

  /// A pack of plain({2, 8}, {}).
  [[nodiscard]] std::filesystem::path plain_pack() {
    const std::filesystem::path pack = sample_.dir() / "plain.panda";
    if (!std::filesystem::exists(pack)) {
      plain({2, 8}, {}).write(sample_.dir() / "plain.safetensors");
      const Checkpoint checkpoint = must(Checkpoint::open(sample_.dir() / "plain.safetensors"));
      PackLayout layout;
      layout.extents.push_back({.name = "base", .tier = Tier::kBase, .weights = {0, 1}});
      must(write_pack(FileSystem::posix(), checkpoint, must(find_weights(checkpoint)), layout, pack,
                      sample_.options()));
    }
    return pack;
  }

  SamplePack sample_;
  Manifest manifest_;
};

TEST_F(ComparePack, FindsEveryTensorAsInTheSource) {
  const VerifyReport report = must(compare());
  EXPECT_THAT(report.mismatches, IsEmpty());
  EXPECT_EQ(report.extent_count, manifest_.extents.size());
  std::uint64_t bytes = 0;
  for (const auto& [name, data] : sample_.expected_tensors()) {
    bytes += data.size();
  }
  EXPECT_EQ(report.verified_bytes, bytes);
}

TEST_F(ComparePack, NamesExtentAndTensorThatDiffer) {
  const PackedExtent& extent = manifest_.extents[2];
  // The second tensor, and the scale of the fourth.
  for (const std::size_t tensor : {1U, 4U}) {
    flip_bit(sample_.target() / "disk-00001.safetensors",
             (extent.offset_bytes + extent.tensors[tensor].offset_bytes) * 8);
  }
  EXPECT_THAT(must(compare()).mismatches,
              ElementsAre("disk-00001.safetensors: extent \"layers.1\": \"layers.1.mlp.weight\" "
                          "differs from the source",
                          AllOf(HasSubstr("layers.1.up.weight_scale"),
                                HasSubstr("differs from the source"))));
}

TEST_F(ComparePack, RefusesAnotherCheckpoint) {
  testing::SafetensorsBuilder other;
  other.add_random("embed.weight", Dtype::kBf16, {10, 16});
  other.write(sample_.dir() / "other.safetensors");
  const Checkpoint checkpoint = must(Checkpoint::open(sample_.dir() / "other.safetensors"));
  const Result<VerifyReport> report =
      compare_with_source(sample_.target(), checkpoint, must(find_weights(checkpoint)), {});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kStale);
}

TEST_F(ComparePack, RefusesACheckpointWithATensorMoreOrOfAnotherShape) {
  const auto refusal = [this](const testing::SafetensorsBuilder& builder) {
    builder.write(sample_.dir() / "other.safetensors");
    const Checkpoint checkpoint = must(Checkpoint::open(sample_.dir() / "other.safetensors"));
    const Result<VerifyReport> report =
        compare_with_source(plain_pack(), checkpoint, must(find_weights(checkpoint)), {});
    return report ? std::string() : report.error().to_string();
  };
  EXPECT_EQ(refusal(plain({2, 8}, {})), "");
  EXPECT_THAT(refusal(plain({4, 4}, {})), HasSubstr("has no \"a.weight\" that is BF16 [2, 8]"));
  EXPECT_THAT(refusal(plain({2, 8}, {"more.weight"})),
              HasSubstr("has a \"more.weight\", the pack has none"));
  EXPECT_THAT(refusal(plain({2, 8}, {"a.input_scale"})),
              HasSubstr("has a \"a.input_scale\", the pack has none"));
}

TEST(VerifyPack, StopsWhenAsked) {
  SamplePack sample;
  must(sample.write());
  const std::atomic<bool> stop = true;
  const Result<VerifyReport> report = verify_pack(sample.target(), {.progress = {}, .stop = &stop});
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code(), ErrorCode::kInterrupted);
}

}  // namespace
}  // namespace trash_panda::format
