#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr std::uint64_t kMegabyteBlock = 1 << 20;

/// The plan as a file gives it back.
Plan reread(const Plan& plan) {
  return parse_plan_toml(write_plan_toml(plan), "p.toml").value();
}

TEST(RepeatedRequest, IsWhatWasAskedFor) {
  PlanRequest request;
  request.max_vram_bytes = 5 * kMegabyteBlock;
  request.min_free_ram_bytes = 1 << 30;
  request.max_pinned_bytes = 8 * kMegabyteBlock;
  request.assignments = {{Tier::kDisk, "-1"}};
  request.lookahead_blocks = 1;
  request.kv_cache_bytes = 4096;
  request.compute_s = 0.25;
  const Hardware machine = machine_with_gpu(16ULL << 30, 12ULL << 30);
  const ModelSummary model = equal_model(8, kMegabyteBlock, 1000);
  const Plan plan = make_plan(model, machine, request).value();
  EXPECT_EQ(plan.request, request);
  const PlanRequest repeated = repeated_request(reread(plan));
  EXPECT_EQ(repeated, request);
  EXPECT_EQ(write_plan_toml(make_plan(model, machine, repeated).value()), write_plan_toml(plan));
}

TEST(RepeatedRequest, OfAProfileHasItsTimes) {
  PlanRequest request;
  request.profile_s = {0.25, 0, 1.0 / 3};
  const Plan plan =
      make_plan(equal_model(3, kMegabyteBlock, 1000), machine(16ULL << 30), request).value();
  EXPECT_EQ(repeated_request(reread(plan)), request);
}

TEST(RepeatedRequest, KeepsWhatWasChangedByHand) {
  Plan plan = make_plan(equal_model(8, kMegabyteBlock, 1000),
                        machine_with_gpu(16ULL << 30, 12ULL << 30), {})
                  .value();
  ASSERT_EQ(tiers_of(plan), "gggggggg");
  EXPECT_EQ(repeated_request(plan), PlanRequest());
  plan.blocks[1].tier = plan.blocks[2].tier = plan.blocks[7].tier = Tier::kDisk;
  plan.blocks[4].tier = Tier::kRam;
  plan.ram_budget_bytes = 5'000'000'000;
  const PlanRequest repeated = repeated_request(reread(plan));
  EXPECT_THAT(repeated.assignments, ElementsAre(Pair(Tier::kRam, "4"), Pair(Tier::kDisk, "1-2,7")));
  EXPECT_EQ(repeated.max_ram_bytes, 5'000'000'000U);
  EXPECT_FALSE(repeated.max_vram_bytes);
  plan.vram_budget_bytes = 6'000'000'000;
  EXPECT_EQ(repeated_request(plan).max_vram_bytes, 6'000'000'000U);
}

TEST(RepeatedRequest, TakesABudgetOfAnOlderFileAsGiven) {
  PlanRequest request;
  request.max_ram_bytes = 4'000'000'000;
  Plan plan =
      make_plan(equal_model(3, kMegabyteBlock, 1000), machine(16ULL << 30), request).value();
  plan.request = {};  // As files had it before they recorded requests.
  plan.placed.clear();
  EXPECT_EQ(repeated_request(plan), request);
}

TEST(PinnedMemory, IsALimitOfWhatWaitsInRamForAGpu) {
  PlanRequest request;
  request.max_vram_bytes = 4 * kMegabyteBlock;
  request.max_pinned_bytes = 5 * kMegabyteBlock;
  const ModelSummary model = equal_model(12, kMegabyteBlock, 1000);
  const Plan plan = make_plan(model, machine_with_gpu(16ULL << 30, 12ULL << 30), request).value();
  EXPECT_EQ(plan.ram_budget_bytes, 5 * kMegabyteBlock);
  EXPECT_LE(plan.ram_used_bytes(), 5 * kMegabyteBlock);
  EXPECT_GT(plan.block_count(Tier::kDisk), 0U);
  // Without a GPU nothing is pinned.
  request.max_vram_bytes.reset();
  EXPECT_EQ(make_plan(model, machine(16ULL << 30), request).value().block_count(Tier::kDisk), 0U);
  request.max_vram_bytes = 4 * kMegabyteBlock;
  request.max_pinned_bytes = 4096;
  const Result<Plan> none = make_plan(model, machine_with_gpu(16ULL << 30, 12ULL << 30), request);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(none.error().hint(), ::testing::HasSubstr("--max-pinned"));
}

TEST(BlockSelector, JoinsNeighbours) {
  const auto text = [](std::vector<std::size_t> indexes) { return block_selector(indexes); };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({3}), "3");
  EXPECT_EQ(text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace trash_panda::plan
