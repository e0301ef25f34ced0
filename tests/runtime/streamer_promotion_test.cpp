// Blocks of the RAM tier that wait on disk for want of memory, and blocks that go to RAM while a
// model runs.

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/runtime/memory_group.h"
#include "trash_panda/runtime/streamer.h"

#include "format/support/coded_sample.h"
#include "runtime/support/stream_pack.h"

namespace trash_panda::runtime {
namespace {

using format::Dtype;
using format::Tier;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using trash_panda::testing::ExpectedTensor;
using trash_panda::testing::must;
using trash_panda::testing::stream_options;
using trash_panda::testing::StreamPack;

constexpr Tier kStays = Tier::kRam;
constexpr Tier kStreams = Tier::kDisk;
constexpr std::size_t kBlocks = 8;

using Tensors = std::map<std::string, ExpectedTensor>;

Tensors lent_tensors(const BlockLease& lease) {
  Tensors found;
  for (const TensorView& tensor : lease.tensors()) {
    const auto* data = reinterpret_cast<const char*>(tensor.data);
    found.emplace(std::string(tensor.name),
                  ExpectedTensor{tensor.dtype, std::string(data, data + tensor.size_bytes)});
  }
  return found;
}

/// One pack for all tests, and what it must give: working that out is slow.
class StreamerPromotion : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    pack_ = std::make_unique<StreamPack>(
        StreamPack::Options{.tiers = std::vector<Tier>(kBlocks, kStreams)});
  }
  static void TearDownTestSuite() {
    expected_.clear();
    pack_.reset();
  }
  /// Bytes of one block, and of what is taken beside the blocks of the RAM tier.
  static std::uint64_t block_bytes() { return pack_->extent("layers.0").stored_bytes; }
  static std::uint64_t base_bytes() { return pack_->stored_bytes(Tier::kBase); }
  static std::uint64_t slot_bytes() { return 2 * block_bytes(); }

  /// Two slots, and tensors as they are stored, for the numbers above.
  static StreamOptions options(Tier tier) {
    StreamOptions options = stream_options();
    options.lookahead_bytes = 1;
    options.tiers = std::vector<Tier>(kBlocks, tier);
    return options;
  }
  StreamOptions logged(Tier tier) {
    StreamOptions how = options(tier);
    how.log = [this](LogLevel level, std::string_view line) {
      // Of blocks: on a faulty disk there are warnings of that, too.
      const bool is_warning = level == LogLevel::kWarning && line.find(" blocks ") != line.npos;
      (is_warning ? warnings_ : lines_).emplace_back(line);
    };
    return how;
  }
  static void expect_block(Streamer& streamer, std::size_t block,
                           std::optional<Dtype> compute = std::nullopt) {
    const Result<BlockLease> lease = streamer.acquire(block);
    ASSERT_TRUE(lease) << lease.error().to_string();
    const auto [at, is_new] = expected_.try_emplace({block, compute});
    if (is_new) {
      at->second = pack_->expected(StreamPack::block_name(block) + ".", compute);
    }
    EXPECT_TRUE(lent_tensors(*lease) == at->second) << "block " << block;
  }
  /// @return Bytes that were read for the blocks of the pass.
  static std::uint64_t run_pass(Streamer& streamer, std::optional<Dtype> compute = std::nullopt) {
    for (std::size_t block = 0; block < kBlocks; ++block) {
      expect_block(streamer, block, compute);
    }
    return streamer.stats().pass_read_bytes_disk + streamer.stats().pass_read_bytes_ram;
  }
  static std::vector<std::size_t> residents(const Streamer& streamer,
                                            std::size_t block_count = kBlocks) {
    std::vector<std::size_t> found;
    for (std::size_t block = 0; block < block_count; ++block) {
      if (streamer.is_resident(block)) {
        found.push_back(block);
      }
    }
    return found;
  }

  static std::unique_ptr<StreamPack> pack_;
  static std::map<std::pair<std::size_t, std::optional<Dtype>>, Tensors> expected_;
  std::vector<std::string> warnings_;
  std::vector<std::string> lines_;
};
std::unique_ptr<StreamPack> StreamerPromotion::pack_;
std::map<std::pair<std::size_t, std::optional<Dtype>>, Tensors> StreamerPromotion::expected_;

TEST_F(StreamerPromotion, KeepsWhatThereIsMemoryForAndReadsItOnceMore) {
  StreamOptions how = logged(kStreams);
  how.memory_bytes_max = base_bytes() + slot_bytes() + 4 * block_bytes() + 100;
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  EXPECT_EQ(run_pass(streamer), kBlocks * block_bytes());
  EXPECT_EQ(streamer.promote(), 4 * block_bytes());
  EXPECT_EQ(streamer.promote(), 0U);
  EXPECT_EQ(streamer.stats().weight_memory_bytes, base_bytes() + slot_bytes() + 4 * block_bytes());
  // Blocks that are in slots already are read into their own memory in the pass after.
  EXPECT_EQ(run_pass(streamer), kBlocks * block_bytes());
  run_pass(streamer);
  EXPECT_EQ(run_pass(streamer), 4 * block_bytes());
  EXPECT_EQ(streamer.stats().pass_read_bytes_ram, 0U);
  EXPECT_EQ(streamer.stats().read_bytes_ram, 4 * block_bytes());
  EXPECT_EQ(streamer.stats().promoted_block_count, 4U);
  EXPECT_EQ(streamer.stats().promoted_bytes, 4 * block_bytes());
  EXPECT_EQ(streamer.stats().demoted_block_count, 0U);
  EXPECT_EQ(streamer.stats().mispredict_count, 0U);
  // What still streams lies spread over the model.
  EXPECT_THAT(residents(streamer), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(lines_.back(), HasSubstr("4 blocks of "));
  EXPECT_THAT(lines_.back(), HasSubstr("; 4 are read every pass"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StreamerPromotion, ReadsNothingOnceAllBlocksStay) {
  for (const std::optional<Dtype> compute : {std::optional<Dtype>(), std::optional(Dtype::kBf16)}) {
    for (const VerifyMode verify : {VerifyMode::kHeaders, VerifyMode::kFull}) {
      StreamOptions how = options(kStreams);
      how.compute_dtype = compute;
      how.verify = verify;
      Streamer streamer = must(Streamer::open(pack_->path(), how));
      EXPECT_EQ(streamer.promote(3 * block_bytes() - 1), 2 * block_bytes());
      EXPECT_EQ(streamer.promote(), 6 * block_bytes());
      run_pass(streamer, compute);
      run_pass(streamer, compute);
      const std::uint64_t read_bytes =
          streamer.stats().read_bytes_disk + streamer.stats().read_bytes_ram;
      EXPECT_EQ(run_pass(streamer, compute), 0U);
      EXPECT_EQ(run_pass(streamer, compute), 0U);
      EXPECT_EQ(streamer.stats().read_bytes_disk + streamer.stats().read_bytes_ram, read_bytes);
      EXPECT_EQ(streamer.stats().read_bytes_ram, kBlocks * block_bytes());
    }
  }
}

TEST_F(StreamerPromotion, KeepsCodedBlocksCoded) {
  testing::CodedSample sample;
  must(sample.write());
  StreamOptions how = stream_options();
  how.tiers = std::vector<Tier>(3, kStreams);
  Streamer streamer = must(Streamer::open(sample.target(), how));
  std::uint64_t stored_bytes = 0;
  for (std::size_t block = 0; block < 3; ++block) {
    stored_bytes += streamer.block(block).stored_bytes;
  }
  for (int pass = 0; pass < 5; ++pass) {
    for (std::size_t block = 0; block < 3; ++block) {
      const BlockLease lease = must(streamer.acquire(block));
      if (pass == 1 && block == 1) {
        EXPECT_EQ(streamer.promote(), stored_bytes);
      }
      for (const TensorView& tensor : lease.tensors()) {
        const std::string bytes(reinterpret_cast<const char*>(tensor.data), tensor.size_bytes);
        EXPECT_TRUE(bytes == sample.tensors().at(std::string(tensor.name))) << tensor.name;
      }
    }
  }
  EXPECT_EQ(streamer.stats().pass_read_bytes_disk + streamer.stats().pass_read_bytes_ram, 0U);
}

TEST_F(StreamerPromotion, StaysWithinTheBudgetOfThePlan) {
  const StreamPack pack({.tiers = {kStreams, kStreams, kStreams, kStreams}});
  const std::uint64_t bytes = pack.extent("layers.0").stored_bytes;
  plan::Plan plan;
  plan.ram_budget_bytes = pack.stored_bytes(Tier::kBase) + 2 * bytes + bytes;
  testing::write_text(pack.path() / "plan.toml", plan::write_plan_toml(plan));
  StreamOptions how = stream_options();
  how.lookahead_bytes = 1;
  Streamer streamer = must(Streamer::open(pack.path(), how));
  EXPECT_EQ(streamer.promote(), bytes);
}

TEST_F(StreamerPromotion, FollowsAPlanThatIsGivenInsteadOfThePacks) {
  const StreamPack pack({.tiers = std::vector<Tier>(4, kStays)});
  const std::uint64_t bytes = pack.extent("layers.0").stored_bytes;
  plan::Plan plan;
  plan.ram_budget_bytes = 1;  // Of the plan in the pack.
  testing::write_text(pack.path() / "plan.toml", plan::write_plan_toml(plan));
  plan.model_fingerprint = must(format::read_manifest(pack.path())).source_fingerprint;
  plan.ram_budget_bytes = pack.stored_bytes(Tier::kBase) + 2 * bytes + 3 * bytes;
  // In another order than the pack's, and with a block that the pack has in its base.
  for (const std::size_t block : {3U, 2U, 1U, 0U}) {
    plan.blocks.push_back(
        {.name = StreamPack::block_name(block), .tier = block < 2 ? kStays : kStreams});
  }
  plan.blocks.insert(plan.blocks.begin(), {.name = "head.0", .tier = kStays});
  plan.demote_ram = {0, 3, 4};  // head.0, layers.1, layers.0.
  StreamOptions how = stream_options();
  how.lookahead_bytes = 1;
  how.plan = plan;
  {
    Streamer streamer = must(Streamer::open(pack.path(), how));
    EXPECT_THAT(residents(streamer, 4), ElementsAre(0, 1));
    EXPECT_EQ(streamer.promote(), bytes);  // What the plan that was given has room for.
  }
  how.memory_bytes_max = pack.stored_bytes(Tier::kBase) + 2 * bytes + bytes + 100;
  {
    const Streamer streamer = must(Streamer::open(pack.path(), how));
    EXPECT_THAT(residents(streamer, 4), ElementsAre(0));  // layers.1 goes first.
  }
  how.plan->blocks.pop_back();
  const Result<Streamer> lacking = Streamer::open(pack.path(), how);
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().code(), ErrorCode::kUsage);
  EXPECT_THAT(lacking.error().message(), HasSubstr("no tier for block \"layers.0\""));
  how.plan->model_fingerprint = "0";
  const Result<Streamer> stale = Streamer::open(pack.path(), how);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code(), ErrorCode::kStale);
}

TEST_F(StreamerPromotion, OpensWithFewerBlocksInRamAndTakesThemBackWhenMemoryFrees) {
  const StreamPack pack({.tiers = std::vector<Tier>(kBlocks, kStays)});
  ASSERT_EQ(pack.extent("layers.0").stored_bytes, block_bytes());
  plan::Plan plan;
  for (std::size_t block = 0; block < kBlocks; ++block) {
    plan.blocks.push_back({.name = StreamPack::block_name(block)});
  }
  plan.demote_ram = {6, 1, 3};
  testing::write_text(pack.path() / "plan.toml", plan::write_plan_toml(plan));
  const auto group = std::make_shared<MemoryGroup>(
      2 * base_bytes() + slot_bytes() + slot_bytes() + 4 * block_bytes(), "test");
  StreamOptions how = options(kStreams);
  how.memory_group = group;
  std::optional<Streamer> other = must(Streamer::open(pack_->path(), how));
  how = logged(kStays);
  how.memory_group = group;
  Streamer streamer = must(Streamer::open(pack.path(), how));
  EXPECT_EQ(group->now_bytes(), group->limit_bytes());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("4 of 8 blocks of the RAM tier are read from")));
  EXPECT_THAT(residents(streamer), ElementsAre(2, 4, 5, 7));
  EXPECT_EQ(streamer.stats().demoted_block_count, 4U);
  run_pass(streamer);
  EXPECT_EQ(run_pass(streamer), 4 * block_bytes());
  ASSERT_LT(base_bytes(), block_bytes());
  other.reset();
  run_pass(streamer);
  run_pass(streamer);
  EXPECT_EQ(run_pass(streamer), 2 * block_bytes());
  // The last that was moved is the first to come back.
  EXPECT_THAT(residents(streamer), ElementsAre(0, 2, 3, 4, 5, 7));
  EXPECT_EQ(streamer.stats().demoted_block_count, 2U);
  EXPECT_EQ(streamer.stats().promoted_block_count, 2U);
  EXPECT_THAT(warnings_, ::testing::SizeIs(1));
  EXPECT_LE(group->max_bytes(), group->limit_bytes());
}

TEST_F(StreamerPromotion, WhatThePlanLeavesOnDiskStaysThereUntilItIsAskedFor) {
  Streamer streamer = must(Streamer::open(pack_->path(), options(kStreams)));
  run_pass(streamer);
  EXPECT_EQ(run_pass(streamer), kBlocks * block_bytes());
  EXPECT_THAT(residents(streamer), IsEmpty());
}

TEST_F(StreamerPromotion, AnotherModelThatOpensGetsTheMemoryBack) {
  const auto group = std::make_shared<MemoryGroup>(
      2 * (base_bytes() + slot_bytes()) + (kBlocks - 2) * block_bytes(), "test");
  StreamOptions how = logged(kStreams);
  how.memory_group = group;
  Streamer first = must(Streamer::open(pack_->path(), how));
  EXPECT_EQ(first.promote(), kBlocks * block_bytes());
  run_pass(first);
  run_pass(first);
  EXPECT_EQ(run_pass(first), 0U);
  std::optional<BlockLease> held = must(first.acquire(0));
  how.log = silent_logger();
  how.tiers = std::vector<Tier>(kBlocks, kStays);
  how.tiers->back() = kStreams;
  {
    // It takes seven blocks and a slot: all that is promoted goes but what is held, and two of them
    // make do with a slot more.
    Streamer second = must(Streamer::open(pack_->path(), how));
    EXPECT_EQ(first.stats().promoted_block_count, 1U);
    EXPECT_TRUE(first.is_resident(0));
    EXPECT_THAT(lines_.back(), HasSubstr("are needed elsewhere"));
    EXPECT_EQ(second.stats().demoted_block_count, 2U);
    expect_block(first, 0);
    held.reset();
    run_pass(first);
    run_pass(second);
    run_pass(first);
    run_pass(second);
    EXPECT_EQ(run_pass(first), (kBlocks - 1) * block_bytes());
  }
  EXPECT_GT(first.promote(), 0U);
  run_pass(first);
  run_pass(first);
  EXPECT_EQ(run_pass(first), 0U);
  EXPECT_LE(group->max_bytes(), group->limit_bytes());
}

TEST_F(StreamerPromotion, GivesUpItsOwnBlocksForWhatItMustHave) {
  const auto group = std::make_shared<MemoryGroup>(UINT64_MAX, "test");
  StreamOptions how = options(kStreams);
  how.compute_dtype = Dtype::kF32;
  how.lookahead_bytes = 2 * block_bytes();  // Three slots: so many blocks may be held.
  how.memory_group = group;
  const std::uint64_t needed_bytes =
      must(Streamer::open(pack_->path(), how)).stats().weight_memory_bytes;
  how.memory_group = std::make_shared<MemoryGroup>(needed_bytes + 6 * block_bytes(), "test");
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  EXPECT_EQ(streamer.promote(), 6 * block_bytes());
  run_pass(streamer, Dtype::kF32);
  run_pass(streamer, Dtype::kF32);
  EXPECT_EQ(run_pass(streamer, Dtype::kF32), 2 * block_bytes());
  {
    const BlockLease first = must(streamer.acquire(0));
    const BlockLease second = must(streamer.acquire(1));
    expect_block(streamer, 2, Dtype::kF32);  // Two buffers were there before.
  }
  EXPECT_LT(streamer.stats().promoted_block_count, 6U);
  run_pass(streamer, Dtype::kF32);
  EXPECT_LE(how.memory_group->max_bytes(), how.memory_group->limit_bytes());
}

TEST_F(StreamerPromotion, DropGivesBackABlockThatWasPromoted) {
  const auto group = std::make_shared<MemoryGroup>(UINT64_MAX, "test");
  StreamOptions how = options(kStreams);
  how.memory_group = group;
  Streamer streamer = must(Streamer::open(pack_->path(), how));
  const std::uint64_t least_bytes = group->now_bytes();
  streamer.promote();
  run_pass(streamer);
  run_pass(streamer);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(streamer.drop(block), block_bytes());
    EXPECT_EQ(streamer.drop(block), 0U);
  }
  EXPECT_EQ(group->now_bytes(), least_bytes);
  run_pass(streamer);
  EXPECT_EQ(run_pass(streamer), kBlocks * block_bytes());
}

/// The file becomes shorter, and whole again.
TEST_F(StreamerPromotion, AReadThatFailsIsMadeAnew) {
  const StreamPack pack({.tiers = {kStreams, kStreams, kStreams, kStreams}});
  const format::PackedExtent& last = pack.extent("layers.3");
  StreamOptions how = stream_options();
  how.lookahead_bytes = 1;
  Streamer streamer = must(Streamer::open(pack.path(), how));
  must(streamer.acquire(0));
  EXPECT_EQ(streamer.promote(), 4 * last.stored_bytes);
  const std::filesystem::path path = pack.shard_path(last);
  const std::string whole = testing::read_text(path);
  std::filesystem::resize_file(path, last.offset_bytes + 4096);
  for (std::size_t block = 1; block < 3; ++block) {
    must(streamer.acquire(block));
  }
  const Result<BlockLease> failed = streamer.acquire(3);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), ErrorCode::kCorrupt);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.write(whole.data(), static_cast<std::streamsize>(whole.size()));
  }
  for (int pass = 0; pass < 3; ++pass) {
    for (std::size_t block = 0; block < 4; ++block) {
      EXPECT_TRUE(lent_tensors(must(streamer.acquire(block))) ==
                  pack.expected(StreamPack::block_name(block) + ".", std::nullopt));
    }
  }
  EXPECT_EQ(streamer.stats().pass_read_bytes_disk + streamer.stats().pass_read_bytes_ram, 0U);
}

/// Promotes, drops and opens others that want the memory, while one thread runs passes.
TEST_F(StreamerPromotion, AnyThreadMayPromoteWhileBlocksStream) {
  const auto group =
      std::make_shared<MemoryGroup>(2 * (base_bytes() + slot_bytes()) + 6 * block_bytes(), "test");
  for (const std::optional<Dtype> compute : {std::optional<Dtype>(), std::optional(Dtype::kBf16)}) {
    StreamOptions how = options(kStreams);
    how.memory_group = group;
    how.compute_dtype = compute;
    how.tiers->at(2) = kStays;
    Streamer streamer = must(Streamer::open(pack_->path(), how));
    how.compute_dtype.reset();
    how.tiers = std::vector<Tier>(kBlocks, kStreams);
    std::atomic<bool> is_over = false;
    std::jthread promoting([&] {
      std::mt19937 random(1);
      while (!is_over) {
        streamer.promote(random() % (3 * block_bytes()));
        streamer.drop(random() % kBlocks);
        std::this_thread::yield();
      }
    });
    std::jthread opening([&] {
      while (!is_over) {
        // Refused only while what it would get is being read.
        static_cast<void>(Streamer::open(pack_->path(), how));
      }
    });
    for (int pass = 0; pass < 25 && !HasFailure(); ++pass) {
      run_pass(streamer, compute);
    }
    is_over = true;
    promoting.join();
    opening.join();
    EXPECT_EQ(group->now_bytes(), streamer.stats().weight_memory_bytes);
    EXPECT_LE(group->max_bytes(), group->limit_bytes());
  }
  EXPECT_EQ(group->now_bytes(), 0U);
}

}  // namespace
}  // namespace trash_panda::runtime
