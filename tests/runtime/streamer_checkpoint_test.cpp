// Streaming from a checkpoint that was not packed.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/format/checkpoint.h"
#include "trash_panda/plan/block_groups.h"
#include "trash_panda/plan/plan.h"
#include "trash_panda/runtime/checkpoint_manifest.h"
#include "trash_panda/runtime/streamer.h"

#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
using ::testing::HasSubstr;
using trash_panda::testing::ExpectedTensor;
using trash_panda::testing::must;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;

constexpr Tier kKept = Tier::kRam;
constexpr Tier kStreamed = Tier::kDisk;

/// A plan of a checkpoint as it is, with these tiers.
plan::Plan plan_of(const std::filesystem::path& path, const std::vector<Tier>& tiers) {
  const format::Checkpoint checkpoint = must(format::Checkpoint::open(path));
  plan::Plan plan;
  plan.model_path = path.string();
  plan.model_fingerprint = checkpoint.fingerprint();
  plan.compute_dtype = "bf16";
  const plan::BlockMap blocks = must(plan::find_blocks(checkpoint.tensors()));
  for (const plan::BlockGroup& group : blocks.groups) {
    for (const plan::Block& block : group.blocks) {
      plan.blocks.push_back({.name = block.name,
                             .tier = tiers.at(plan.blocks.size()),
                             .stored_bytes = block.stored_bytes});
    }
  }
  return plan;
}

std::map<std::string, ExpectedTensor> tensors_of(const std::vector<TensorView>& tensors) {
  std::map<std::string, ExpectedTensor> found;
  for (const TensorView& tensor : tensors) {
    const auto* data = reinterpret_cast<const char*>(tensor.data);
    found.emplace(std::string(tensor.name),
                  ExpectedTensor{tensor.dtype, std::string(data, data + tensor.size_bytes)});
  }
  return found;
}

/// Both modes of reading, both tiers, tensors on any alignment, a file's end that is no page.
TEST(StreamerCheckpoint, GivesTheTensorsThatItsPackWould) {
  const StreamPack pack({.tiers = {kKept, kStreamed, kStreamed, kKept, kStreamed},
                         .extra_bytes_of_block_1 = 3'000'000});
  const plan::Plan plan =
      plan_of(pack.checkpoint(), {kKept, kStreamed, kStreamed, kKept, kStreamed});
  for (const std::optional<Dtype> compute :
       {std::optional<Dtype>(), std::optional(Dtype::kBf16), std::optional(Dtype::kF32)}) {
    StreamOptions options = stream_options();
    options.compute_dtype = compute;
    Streamer streamer = must(Streamer::open_checkpoint(pack.checkpoint(), plan, options));
    std::map<std::string, ExpectedTensor> base = pack.expected("embed.", compute);
    base.merge(pack.expected("head.", compute));
    EXPECT_EQ(tensors_of(streamer.base()), base);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t block = 0; block < pack.block_count(); ++block) {
        const Result<BlockLease> lease = streamer.acquire(block);
        ASSERT_TRUE(lease) << lease.error().to_string();
        EXPECT_EQ(tensors_of(lease->tensors()),
                  pack.expected(StreamPack::block_name(block) + ".", compute))
            << "block " << block;
      }
    }
    EXPECT_EQ(streamer.stats().mispredict_count, 0U);
    EXPECT_GT(streamer.stats().pass_read_bytes_disk, 0U);
    EXPECT_EQ(streamer.stats().pass_read_bytes_ram, 0U);
  }
}

TEST(StreamerCheckpoint, ManifestHasTheExtentsOfThePack) {
  const StreamPack pack({.tiers = {kKept, kStreamed}});
  const plan::Plan plan = plan_of(pack.checkpoint(), {kKept, kStreamed});
  const format::Manifest manifest = must(checkpoint_manifest(pack.checkpoint(), plan));
  ASSERT_EQ(manifest.extents.size(), pack.manifest().extents.size());
  for (std::size_t at = 0; at < manifest.extents.size(); ++at) {
    const format::PackedExtent& extent = manifest.extents[at];
    EXPECT_EQ(extent.name, pack.manifest().extents[at].name);
    EXPECT_EQ(extent.tier, pack.manifest().extents[at].tier);
    EXPECT_EQ(extent.tensors.size(), pack.manifest().extents[at].tensors.size());
    EXPECT_EQ(extent.stored_bytes % 4096, 0U);
    // Whole pages around what is needed, not the whole file.
    EXPECT_LT(extent.stored_bytes, pack.manifest().extents[at].stored_bytes + 3 * 4096);
  }
}

TEST(StreamerCheckpoint, RefusesWhatIsForAnotherCheckpoint) {
  const StreamPack pack({.tiers = {kStreamed, kStreamed}});
  plan::Plan plan = plan_of(pack.checkpoint(), {kStreamed, kStreamed});
  plan.model_fingerprint = "0123";
  EXPECT_EQ(Streamer::open_checkpoint(pack.checkpoint(), plan, stream_options()).error().code(),
            ErrorCode::kStale);
  EXPECT_EQ(Streamer::open_checkpoint(pack.checkpoint().parent_path() / "x", plan, stream_options())
                .error()
                .code(),
            ErrorCode::kMissing);
}

TEST(StreamerCheckpoint, HasNoChecksumsToCompare) {
  const StreamPack pack({.tiers = {kStreamed, kStreamed}});
  StreamOptions options = stream_options();
  options.verify = VerifyMode::kFull;
  const Result<Streamer> refused = Streamer::open_checkpoint(
      pack.checkpoint(), plan_of(pack.checkpoint(), {kStreamed, kStreamed}), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(refused.error().message(), HasSubstr("no checksums"));
}

TEST(StreamerCheckpoint, SaysWhenTheFileBecameShorter) {
  const StreamPack pack({.tiers = {kStreamed, kStreamed, kStreamed}});
  const plan::Plan plan = plan_of(pack.checkpoint(), {kStreamed, kStreamed, kStreamed});
  StreamOptions options = stream_options();
  options.lookahead_bytes = 1;
  Streamer streamer = must(Streamer::open_checkpoint(pack.checkpoint(), plan, options));
  std::filesystem::resize_file(pack.checkpoint(), 4096);
  const Result<BlockLease> lease = streamer.acquire(2);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().reason(), "truncated");
}

}  // namespace
}  // namespace trash_panda::runtime
