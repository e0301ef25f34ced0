#include "trash_panda/plan/explanation.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/advice.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/plan/prediction.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

constexpr std::uint64_t kExplainedBlockBytes = 100'000'000;

/// A 12 GB card on a link of 12 GB/s and a drive of 1 GB/s.
Hardware explained_machine() {
  Hardware hardware = machine_with_gpu(16 * kGiB, 12'000'000'000);
  hardware.disks.emplace_back().read_bytes_per_s = 1'000'000'000;
  hardware.gpus[0].h2d_pinned_bytes_per_s = 12'000'000'000;
  return hardware;
}

/// VRAM for base, slots and three of twelve blocks; RAM for five and three slots.
PlanRequest explained_request() {
  PlanRequest request;
  request.compute_s = 0.1;
  request.max_vram_bytes = 5 * kExplainedBlockBytes + 2 * kMiB;
  request.max_ram_bytes = 8 * kExplainedBlockBytes + kMiB;
  return request;
}

ModelSummary explained_model() {
  return equal_model(12, kExplainedBlockBytes, kMiB);
}

std::vector<std::size_t> all_indexes(const Plan& plan) {
  std::vector<std::size_t> indexes(plan.blocks.size());
  std::iota(indexes.begin(), indexes.end(), std::size_t{0});
  return indexes;
}

TEST(ExplainBlocks, SaysWhichMemoryIsShort) {
  const Plan plan = make_plan(explained_model(), explained_machine(), explained_request()).value();
  ASSERT_EQ(plan.block_count(Tier::kGpu), 3U);
  ASSERT_GT(plan.block_count(Tier::kRam), 0U);
  ASSERT_GT(plan.block_count(Tier::kDisk), 0U);
  double stall_s = 0;
  for (const BlockExplanation& block : explain_blocks(plan, all_indexes(plan))) {
    const Tier tier = plan.blocks[block.index].tier;
    ASSERT_EQ(block.moves.size(), 2U);
    EXPECT_EQ(block.reason, tier == Tier::kGpu ? TierReason::kFastest : TierReason::kNoRoom);
    EXPECT_EQ(block.cost, block_cost(plan.blocks[block.index], plan.rates, true));
    EXPECT_EQ(block.moves[0].tier, tier == Tier::kGpu ? Tier::kRam : Tier::kGpu);
    stall_s += block.stall_s;
    for (const TierMove& move : block.moves) {
      ASSERT_TRUE(move.pass_s);
      // To a slower tier the pass is never shorter, to a faster one never longer.
      EXPECT_TRUE(move.tier > tier ? *move.pass_s >= plan.predicted->pass_s * (1 - 1e-9)
                                   : *move.pass_s <= plan.predicted->pass_s * (1 + 1e-9));
      EXPECT_EQ(move.fits, move.ram_used_bytes <= plan.ram_budget_bytes &&
                               move.vram_used_bytes <= plan.vram_budget_bytes);
    }
  }
  EXPECT_NEAR(stall_s, plan.predicted->stall_s, 1e-9);
}

TEST(ExplainBlocks, MovesAsAPlanWithThatTierHasIt) {
  PlanRequest request = explained_request();
  request.max_vram_bytes = 4 * kGiB;  // Room for every move.
  request.max_ram_bytes = 4 * kGiB;
  request.assignments = {{Tier::kGpu, "0-3"}, {Tier::kRam, "4-7"}, {Tier::kDisk, "8-11"}};
  request.lookahead_blocks = 2;
  const ModelSummary model = explained_model();
  const Plan plan = make_plan(model, explained_machine(), request).value();
  std::size_t compared_count = 0;
  for (const BlockExplanation& block : explain_blocks(plan, all_indexes(plan))) {
    EXPECT_EQ(block.reason, TierReason::kAssigned);
    for (const TierMove& move : block.moves) {
      PlanRequest moved_request = request;
      moved_request.assignments.emplace_back(move.tier, std::to_string(block.index));
      const Plan moved = make_plan(model, explained_machine(), moved_request).value();
      EXPECT_EQ(move.ram_used_bytes, moved.ram_used_bytes());
      EXPECT_TRUE(move.fits);
      // The planner is free to take another number of slots in VRAM.
      if (moved.device_slot_count == plan.device_slot_count) {
        ++compared_count;
        EXPECT_EQ(move.vram_used_bytes, moved.vram_used_bytes());
        EXPECT_NEAR(*move.pass_s, moved.predicted->pass_s, 1e-9);
      }
    }
  }
  EXPECT_GT(compared_count, 0U);
}

TEST(ExplainBlocks, CountsTheSlotsOfAFirstDiskBlock) {
  PlanRequest request = explained_request();
  request.max_vram_bytes.reset();
  const Plan plan = make_plan(explained_model(), explained_machine(), request).value();
  ASSERT_EQ(plan.block_count(Tier::kGpu), 12U);
  const std::vector<std::size_t> first = {0};
  const BlockExplanation block = explain_blocks(plan, first).front();
  EXPECT_EQ(block.reason, TierReason::kFastest);
  ASSERT_EQ(block.moves.size(), 2U);
  const std::uint64_t extent_bytes = plan.blocks[0].extent_bytes;
  // To RAM it takes itself there, and a slot in VRAM; to disk a slot in RAM too.
  EXPECT_EQ(block.moves[0].ram_used_bytes, extent_bytes);
  EXPECT_EQ(block.moves[0].vram_used_bytes, plan.vram_used_bytes());
  EXPECT_EQ(block.moves[1].ram_used_bytes, extent_bytes);
}

TEST(ExplainBlocks, KnowsWhatWasChangedByHand) {
  Plan plan = make_plan(explained_model(), machine(16 * kGiB), {}).value();
  ASSERT_EQ(plan.block_count(Tier::kRam), 12U);
  plan.blocks[5].tier = Tier::kDisk;
  const std::vector<std::size_t> some = {4, 5};
  const std::vector<BlockExplanation> blocks = explain_blocks(plan, some);
  EXPECT_EQ(blocks[0].reason, TierReason::kFastest) << "there is no VRAM";
  EXPECT_EQ(blocks[1].reason, TierReason::kEdited);
  EXPECT_FALSE(blocks[1].moves[0].pass_s && plan.rates.disk_bytes_per_s);
  plan.placed.clear();
  EXPECT_EQ(explain_blocks(plan, some)[1].reason, TierReason::kNotMeasured);
}

TEST(MemoryAdvice, HoldsWhatItPromises) {
  const ModelSummary model = explained_model();
  const PlanRequest request = explained_request();
  const Hardware machine = explained_machine();
  const Plan plan = make_plan(model, machine, request).value();
  const auto more_ram = advise_more_ram(model, machine, request, plan);
  ASSERT_TRUE(more_ram);
  PlanRequest with_ram = request;
  with_ram.max_ram_bytes = *request.max_ram_bytes + more_ram->more_bytes;
  EXPECT_EQ(make_plan(model, machine, with_ram).value().predicted->pass_s, more_ram->pass_s);
  EXPECT_LE(more_ram->pass_s, 0.95 * plan.predicted->pass_s);
  const auto more_vram = advise_more_vram(model, machine, request, plan);
  ASSERT_TRUE(more_vram);
  PlanRequest with_vram = request;
  with_vram.max_vram_bytes = *request.max_vram_bytes + more_vram->more_bytes;
  EXPECT_EQ(make_plan(model, machine, with_vram).value().predicted->pass_s, more_vram->pass_s);
  EXPECT_LE(more_vram->pass_s, 0.95 * plan.predicted->pass_s);
  // Where nothing streams, nothing helps.
  PlanRequest roomy = request;
  roomy.max_vram_bytes.reset();
  const Plan resident = make_plan(model, machine, roomy).value();
  EXPECT_FALSE(advise_more_ram(model, machine, roomy, resident));
  EXPECT_FALSE(advise_more_vram(model, machine, roomy, resident));
}

}  // namespace
}  // namespace trash_panda::plan
