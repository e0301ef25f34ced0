#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/pack_writer.h"

#include "format/support/sample_pack.h"

namespace trash_panda::format {
namespace {

using ::testing::HasSubstr;
using testing::must;
using testing::SamplePack;

void expect_layout_refused(SamplePack& sample, ErrorCode code, const std::string& message) {
  const Result<Manifest> laid_out = sample.lay_out_pack();
  ASSERT_FALSE(laid_out);
  EXPECT_EQ(laid_out.error().code(), code);
  EXPECT_THAT(laid_out.error().message(), HasSubstr(message));
}

TEST(LayOutPack, PutsTiersIntoShardsOfTheirOwn) {
  SamplePack sample;
  const Manifest manifest = must(sample.lay_out_pack());
  std::vector<std::string> shards;
  for (const PackedExtent& extent : manifest.extents) {
    shards.push_back(extent.name + " " + manifest.shards[extent.shard_index].name);
  }
  EXPECT_THAT(shards, ::testing::ElementsAre(
                          "base base-00001.safetensors", "layers.0 gpu-00001.safetensors",
                          "layers.1 disk-00001.safetensors", "layers.2 ram-00001.safetensors",
                          "layers.3 disk-00001.safetensors"));
}

TEST(LayOutPack, AlignsExtentsToPagesAndTensorsTo256) {
  for (const std::uint64_t page_bytes : {4096U, 65536U, 2097152U}) {
    SamplePack sample;
    sample.options().page_bytes = page_bytes;
    for (const PackedExtent& extent : must(sample.lay_out_pack()).extents) {
      EXPECT_EQ(extent.offset_bytes % page_bytes, 0U);
      EXPECT_EQ(extent.stored_bytes % page_bytes, 0U);
      for (const PackedTensor& tensor : extent.tensors) {
        EXPECT_EQ(tensor.offset_bytes % 256, 0U) << tensor.name;
      }
    }
  }
}

TEST(LayOutPack, GivesTheSizeThatIsWritten) {
  SamplePack sample;
  const PackSize size = pack_size(must(sample.lay_out_pack()));
  EXPECT_EQ(size.tier_bytes.at(Tier::kDisk), 2 * 4096U);
  must(sample.write());
  std::uint64_t written_bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(sample.target())) {
    written_bytes += entry.path().extension() == ".safetensors" ? entry.file_size() : 0;
  }
  EXPECT_EQ(size.total_bytes, written_bytes);
}

TEST(LayOutPack, PutsAScaleBehindItsWeight) {
  SamplePack sample;
  const PackedExtent extent = must(sample.lay_out_pack()).extents[2];
  EXPECT_EQ(extent.tensors[1].name, "layers.1.mlp.weight");
  EXPECT_EQ(extent.tensors[1].scale->granularity, Granularity::kTensor);
  EXPECT_EQ(extent.tensors[2].name, "layers.1.mlp.weight_scale");
  EXPECT_TRUE(extent.tensors[2].is_scale);
  EXPECT_EQ(extent.tensors[2].shape, Shape());
}

TEST(LayOutPack, TakesAliasesOfTheLayoutAndOfTheTable) {
  SamplePack sample;
  sample.weights().aliases = {{"tied.weight", "embed.weight"}};
  EXPECT_EQ(must(sample.lay_out_pack()).aliases.size(), 2U);
}

TEST(LayOutPack, RefusesAScaleNameThatIsTaken) {
  SamplePack sample;
  sample.weights().weights[0].name = "layers.0.mlp.weight_scale";
  expect_layout_refused(sample, ErrorCode::kUnsupported,
                        "model.safetensors: scale \"layers.0.mlp.weight_scale\" has the name of "
                        "another tensor");
}

TEST(LayOutPack, RefusesReservedNames) {
  SamplePack sample;
  sample.weights().weights[0].name = "__pad__.disk-00001.0";
  expect_layout_refused(sample, ErrorCode::kUnsupported,
                        "model.safetensors: tensor \"__pad__.disk-00001.0\"");
}

TEST(LayOutPack, RefusesAWeightThatIsLeftOut) {
  SamplePack sample;
  sample.layout().extents[0].weights.pop_back();
  expect_layout_refused(sample, ErrorCode::kUsage, "no extent has tensor \"step\"");
}

TEST(LayOutPack, RefusesAWeightThatIsInTwoExtents) {
  SamplePack sample;
  sample.layout().extents[1].weights.push_back(0);
  expect_layout_refused(sample, ErrorCode::kUsage, "\"embed.weight\" is in extent \"layers.0\"");
}

TEST(LayOutPack, RefusesAWeightThatDoesNotExist) {
  SamplePack sample;
  sample.layout().extents[1].weights.push_back(1000);
  expect_layout_refused(sample, ErrorCode::kUsage, "weight 1000 of 18");
}

TEST(LayOutPack, RefusesAnExtentWithoutTensors) {
  SamplePack sample;
  sample.layout().extents.push_back({.name = "empty", .tier = Tier::kRam, .weights = {}});
  expect_layout_refused(sample, ErrorCode::kUsage, "\"empty\" has no tensors");
}

TEST(LayOutPack, RefusesOddPageSizes) {
  for (const std::uint64_t page_bytes : {0U, 512U, 12288U, 33554432U}) {
    SamplePack sample;
    sample.options().page_bytes = page_bytes;
    expect_layout_refused(sample, ErrorCode::kUsage, std::to_string(page_bytes));
  }
}

TEST(LayOutPack, RefusesADtypeThatDoesNotFitTheBytes) {
  SamplePack sample;
  sample.weights().weights[0].dtype = Dtype::kF32;
  expect_layout_refused(sample, ErrorCode::kCorrupt, "\"embed.weight\" of shape [10, 16]");
}

}  // namespace
}  // namespace trash_panda::format
