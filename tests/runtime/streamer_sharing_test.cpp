// Streamers that share a limit of memory: RAM blocks come and go one by one.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trash_panda/runtime/memory_group.h"
#include "trash_panda/runtime/streamer.h"

#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Tier;
using trash_panda::testing::must;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;

constexpr Tier kInRam = Tier::kRam;
constexpr Tier kOnDisk = Tier::kDisk;

StreamOptions sharing(const std::shared_ptr<MemoryGroup>& group) {
  StreamOptions options = stream_options();
  options.memory_group = group;
  options.ram_memory = RamMemory::kAsNeeded;
  // Of the RAM tier, one block at a time is read ahead.
  options.lookahead_bytes = 1;
  return options;
}

std::string first_bytes(const BlockLease& lease) {
  const TensorView& tensor = lease.tensors().front();
  return {reinterpret_cast<const char*>(tensor.data), tensor.size_bytes};
}

TEST(StreamerSharing, TakesMemoryOfRamBlocksAsTheyAreRead) {
  const StreamPack pack({.tiers = {kInRam, kInRam, kInRam, kInRam}});
  const std::uint64_t base = pack.stored_bytes(Tier::kBase);
  const std::uint64_t block = pack.extent("layers.3").stored_bytes;
  const auto group = std::make_shared<MemoryGroup>(base + 4 * block, "test");
  Streamer streamer = must(Streamer::open(pack.path(), sharing(group)));
  EXPECT_LE(group->now_bytes(), base + 2 * block);
  EXPECT_TRUE(streamer.preload(3));
  EXPECT_TRUE(streamer.preload(3));
  for (std::size_t at = 0; at < 4; ++at) {
    must(streamer.acquire(at));
  }
  EXPECT_EQ(group->now_bytes(), base + pack.stored_bytes(kInRam));
  EXPECT_EQ(streamer.stats().weight_memory_bytes, group->now_bytes());
  EXPECT_EQ(streamer.stats().read_bytes_ram, pack.stored_bytes(kInRam));
}

TEST(StreamerSharing, DropsABlockAndReadsItAgainWhenItIsAskedFor) {
  const StreamPack pack({.tiers = {kInRam, kInRam, kInRam}});
  const auto group = std::make_shared<MemoryGroup>(UINT64_MAX, "test");
  Streamer streamer = must(Streamer::open(pack.path(), sharing(group)));
  std::vector<std::string> before;
  for (std::size_t at = 0; at < 3; ++at) {
    before.push_back(first_bytes(must(streamer.acquire(at))));
  }
  const std::uint64_t full_bytes = group->now_bytes();
  {
    const BlockLease held = must(streamer.acquire(1));
    EXPECT_EQ(streamer.drop(1), 0U);  // Someone computes with it.
  }
  const std::uint64_t dropped_bytes = streamer.drop(1);
  EXPECT_EQ(dropped_bytes, pack.extent("layers.1").stored_bytes);
  EXPECT_EQ(streamer.drop(1), 0U);
  EXPECT_EQ(group->now_bytes(), full_bytes - dropped_bytes);
  // Others going on don't bring it back.
  must(streamer.acquire(0));
  EXPECT_EQ(group->now_bytes(), full_bytes - dropped_bytes);
  EXPECT_EQ(first_bytes(must(streamer.acquire(1))), before[1]);
  EXPECT_EQ(group->now_bytes(), full_bytes);
  EXPECT_EQ(group->max_bytes(), full_bytes);
}

TEST(StreamerSharing, WaitsForMemoryThatAnotherGivesBack) {
  const StreamPack pack({.tiers = {kInRam, kInRam, kInRam}});
  const std::uint64_t base = pack.stored_bytes(Tier::kBase);
  const std::uint64_t ram = pack.stored_bytes(kInRam);
  const auto group = std::make_shared<MemoryGroup>(2 * base + ram, "the pipeline");
  Streamer first = must(Streamer::open(pack.path(), sharing(group)));
  for (std::size_t at = 0; at < 3; ++at) {
    must(first.acquire(at));
  }
  Streamer second = must(Streamer::open(pack.path(), sharing(group)));
  const Result<void> refused = second.preload(0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kDoesNotFit);
  ASSERT_TRUE(refused.error().shortage());
  EXPECT_EQ(refused.error().shortage()->budget_bytes, group->limit_bytes());
  {
    const BlockLease running = must(first.acquire(0));
    EXPECT_FALSE(second.acquire(0));
  }
  EXPECT_FALSE(second.acquire(0));  // The first model's pass has not ended.
  EXPECT_GT(first.drop(0), 0U);
  EXPECT_TRUE(second.preload(0));
  must(second.acquire(0));
  EXPECT_FALSE(second.preload(3));  // There is none.
  EXPECT_LE(group->max_bytes(), group->limit_bytes());
}

TEST(StreamerSharing, AcquireTakesMemoryOfModelsThatRestTheLongestFirst) {
  const StreamPack pack({.tiers = {kInRam, kInRam, kInRam}});
  const std::uint64_t base = pack.stored_bytes(Tier::kBase);
  const std::uint64_t ram = pack.stored_bytes(kInRam);
  const std::uint64_t block = pack.extent("layers.2").stored_bytes;
  const auto group = std::make_shared<MemoryGroup>(3 * base + 2 * ram, "the pipeline");
  std::vector<std::string> expected;
  const auto run_pass = [&](Streamer& streamer) {
    for (std::size_t at = 0; at < 3; ++at) {
      const std::string bytes = first_bytes(must(streamer.acquire(at)));
      if (expected.size() < 3) {
        expected.push_back(bytes);
      }
      EXPECT_EQ(bytes, expected[at]);
    }
  };
  Streamer oldest = must(Streamer::open(pack.path(), sharing(group)));
  Streamer newer = must(Streamer::open(pack.path(), sharing(group)));
  run_pass(newer);
  run_pass(oldest);
  run_pass(newer);
  Streamer running = must(Streamer::open(pack.path(), sharing(group)));
  EXPECT_FALSE(running.preload(0));  // What is not needed yet takes nothing from anyone.
  must(running.acquire(0));
  EXPECT_EQ(oldest.stats().weight_memory_bytes, base + ram - block);
  EXPECT_EQ(newer.stats().weight_memory_bytes, base + ram);
  must(running.acquire(1));
  must(running.acquire(2));
  EXPECT_EQ(oldest.stats().weight_memory_bytes, base);
  EXPECT_EQ(newer.stats().weight_memory_bytes, base + ram);
  EXPECT_EQ(running.stats().weight_memory_bytes, base + ram);
  // It has blocks read again, at the cost of the one that has rested longest by now.
  run_pass(oldest);
  EXPECT_EQ(newer.stats().weight_memory_bytes, base);
  run_pass(running);
  run_pass(newer);
  EXPECT_EQ(running.stats().read_bytes_ram, ram);
  EXPECT_EQ(group->max_bytes(), group->limit_bytes());
}

TEST(StreamerSharing, GivesAllBackWhenItEnds) {
  const StreamPack pack({.tiers = {kInRam, kOnDisk, kOnDisk}});
  const auto group = std::make_shared<MemoryGroup>(UINT64_MAX, "test");
  {
    Streamer streamer = must(Streamer::open(pack.path(), sharing(group)));
    must(streamer.acquire(0));
    EXPECT_GT(group->now_bytes(), 0U);
  }
  EXPECT_EQ(group->now_bytes(), 0U);
  const auto small = std::make_shared<MemoryGroup>(4096, "test");
  const Result<Streamer> refused = Streamer::open(pack.path(), sharing(small));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kDoesNotFit);
}

}  // namespace
}  // namespace trash_panda::runtime
