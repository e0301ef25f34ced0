#include "trash_panda/plan/stages.h"

#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/prediction.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;

constexpr std::uint64_t kStageBlock = 500'000'000;

/// 16 GiB of RAM, 12 GB of VRAM, a drive of 1 GB/s and a link of 10 GB/s.
Hardware pipeline_machine() {
  Hardware hardware = machine_with_gpu(16 * kGiB, 12'000'000'000);
  hardware.measured_at = "2026-01-01T00:00:00Z";
  hardware.disks.emplace_back().read_bytes_per_s = 1'000'000'000;
  hardware.disks[0].device = "nvme0n1";
  hardware.gpus[0].h2d_pinned_bytes_per_s = 10'000'000'000;
  return hardware;
}

Stage stage_of(std::string name, std::size_t block_count, double compute_s) {
  Stage stage;
  stage.name = std::move(name);
  stage.model = equal_model(block_count, kStageBlock, 200'000'000);
  stage.request.compute_s = compute_s;
  stage.hardware = pipeline_machine();
  return stage;
}

TEST(PlanStages, GivesEachStageTheMemoryOfTheOnesBefore) {
  const std::vector<Stage> stages = {stage_of("encode", 16, 1), stage_of("denoise", 40, 2),
                                     stage_of("decode", 2, 1)};
  const std::vector<PlannedStage> planned = plan_stages(stages).value();
  ASSERT_EQ(planned.size(), 3U);
  for (std::size_t at = 0; at < stages.size(); ++at) {
    // The same as alone on the machine.
    EXPECT_EQ(planned[at].plan,
              make_plan(stages[at].model, stages[at].hardware, stages[at].request).value());
    EXPECT_EQ(planned[at].name, stages[at].name);
    EXPECT_EQ(planned[at].held_ram_bytes, 0U);
    EXPECT_EQ(planned[at].held_vram_bytes, 0U);
  }
  EXPECT_EQ(planned[0].preload, Preload());
}

TEST(PlanStages, LeavesAloneWhatStaysLoaded) {
  std::vector<Stage> stages = {stage_of("encode", 6, 1), stage_of("denoise", 40, 2)};
  const Plan alone = make_plan(stages[1].model, stages[1].hardware, stages[1].request).value();
  stages[0].stays_loaded = true;
  const std::vector<PlannedStage> planned = plan_stages(stages).value();
  EXPECT_GT(planned[0].plan.vram_used_bytes(), 6 * kStageBlock);
  EXPECT_EQ(planned[1].held_vram_bytes, planned[0].plan.vram_used_bytes());
  EXPECT_EQ(planned[1].plan.vram_budget_bytes,
            alone.vram_budget_bytes - planned[0].plan.vram_used_bytes());
  EXPECT_EQ(planned[1].vram_peak_bytes,
            planned[0].plan.vram_used_bytes() + planned[1].plan.vram_used_bytes());
  EXPECT_LE(planned[1].vram_peak_bytes, alone.vram_budget_bytes);
  EXPECT_GE(planned[1].plan.predicted->pass_s, alone.predicted->pass_s);
}

TEST(PlanStages, RefusesAStageThatWhatStaysLoadedLeavesNothing) {
  std::vector<Stage> stages = {stage_of("encode", 16, 1), stage_of("denoise", 40, 2)};
  stages[0].stays_loaded = true;
  stages[0].request.max_vram_bytes = 9 * kStageBlock;
  stages[1].request.max_vram_bytes = 2 * kStageBlock;
  const auto planned = plan_stages(stages);
  ASSERT_FALSE(planned);
  EXPECT_EQ(planned.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(planned.error().to_string(), HasSubstr("stage denoise"));
  EXPECT_THAT(planned.error().to_string(), HasSubstr("of VRAM, all of the budget of 1.00 GB"));
}

TEST(PlanStages, PreloadsAllOfTheNextStageWhereThereIsMemoryAndTime) {
  std::vector<Stage> stages = {stage_of("denoise", 4, 2), stage_of("decode", 4, 1)};
  stages[0].step_count = 20;  // The drive is idle once its weights are there.
  const std::vector<PlannedStage> planned = plan_stages(stages).value();
  const Preload& preload = planned[1].preload;
  EXPECT_TRUE(preload.has_base);
  EXPECT_EQ(preload.block_count, 4U);
  EXPECT_EQ(preload.read_bytes, 4 * kStageBlock + 200'000'000);
  EXPECT_EQ(preload.vram_bytes, planned[1].plan.vram_used_bytes());
  EXPECT_EQ(preload.ram_bytes, 0U);
  // What is left of its first pass is its computation.
  ASSERT_TRUE(preload.saved_s);
  EXPECT_NEAR(planned[1].plan.predicted->first_pass_s - *preload.saved_s, 1, 1e-9);
  EXPECT_NEAR(planned[1].predicted_s.value(), 1, 1e-9);
  EXPECT_EQ(planned[0].vram_peak_bytes,
            planned[0].plan.vram_used_bytes() + planned[1].plan.vram_used_bytes());
}

TEST(PlanStages, PreloadsNothingWhileTheDriveIsBusy) {
  // One pass that reads all the time, and so does every pass after it.
  std::vector<Stage> stages = {stage_of("denoise", 100, 0.1), stage_of("decode", 4, 1)};
  stages[0].step_count = 5;
  stages[0].request.max_ram_bytes = 6 * kStageBlock;
  stages[0].request.resident_blocks = 0;  // So that memory is not what is short.
  const std::vector<PlannedStage> planned = plan_stages(stages).value();
  EXPECT_EQ(planned[0].plan.predicted->limiting, "disk");
  EXPECT_LT(planned[1].preload.read_bytes, kStageBlock);
  // With a drive of its own there is time, for as much as there is memory for.
  stages[1].hardware.disks[0].device = "sda";
  EXPECT_GT(plan_stages(stages).value()[1].preload.read_bytes, kStageBlock);
}

TEST(PlanStages, LetsBlocksForVramWaitInRamWhereVramIsTaken) {
  std::vector<Stage> stages = {stage_of("denoise", 20, 20), stage_of("decode", 4, 1)};
  stages[0].step_count = 20;
  const std::vector<PlannedStage> planned = plan_stages(stages).value();
  const Preload& preload = planned[1].preload;
  EXPECT_EQ(planned[1].plan.block_count(Tier::kGpu), 4U);
  EXPECT_EQ(preload.block_count, 4U);
  EXPECT_GT(preload.ram_bytes, 0U);
  // They are copied when their turn comes, not read.
  EXPECT_LT(preload.saved_s.value(), planned[1].plan.predicted->first_pass_s - 1);
  EXPECT_GT(preload.saved_s.value(), 0);
}

TEST(PlanStages, NamesTheStageThatFails) {
  std::vector<Stage> stages = {stage_of("encode", 16, 1), stage_of("denoise", 40, 2)};
  stages[1].request.max_ram_bytes = kMiB;
  stages[1].request.max_vram_bytes = 4 * kStageBlock;
  const auto planned = plan_stages(stages);
  ASSERT_FALSE(planned);
  EXPECT_THAT(planned.error().to_string(), HasSubstr("stage denoise"));
}

TEST(PlanStages, PredictsNoTimeWithoutRates) {
  std::vector<Stage> stages = {stage_of("encode", 4, 1), stage_of("denoise", 30, 2)};
  for (Stage& stage : stages) {
    stage.hardware.disks.clear();
  }
  const std::vector<PlannedStage> planned = plan_stages(stages).value();
  EXPECT_FALSE(planned[1].predicted_s);
  EXPECT_FALSE(planned[1].preload.saved_s);
  EXPECT_GT(planned[1].preload.read_bytes, 0U);  // What fits is known all the same.
}

TEST(PlanStages, KeepsWithinTheBudgetsAndNeverLosesTime) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  std::size_t preloaded_count = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<Stage> stages;
    for (const char* name : {"encode", "denoise", "decode"}) {
      Stage& stage = stages.emplace_back(
          stage_of(name, 1 + engine() % 40, 0.1 * static_cast<double>(1 + engine() % 50)));
      stage.step_count = 1 + engine() % 10;
      stage.hardware.disks[0].read_bytes_per_s = 200'000'000 + engine() % 3'000'000'000;
      stage.hardware.ram_total_bytes = 64 * kGiB;
    }
    stages[0].stays_loaded = engine() % 2 == 0;
    stages[0].request.resident_blocks = 1;
    const auto result = plan_stages(stages);
    ASSERT_TRUE(result) << result.error().to_string();
    for (std::size_t at = 0; at < stages.size(); ++at) {
      const PlannedStage& stage = (*result)[at];
      EXPECT_LE(stage.ram_peak_bytes, stage.plan.ram_budget_bytes + stage.held_ram_bytes);
      EXPECT_LE(stage.vram_peak_bytes, stage.plan.vram_budget_bytes + stage.held_vram_bytes);
      if (at > 0) {
        EXPECT_GE(stage.preload.saved_s.value(), -1e-9);
        EXPECT_LE(stage.preload.saved_s.value(), stage.plan.predicted->first_pass_s);
        preloaded_count += stage.preload.block_count > 0 ? 1U : 0U;
      }
    }
  }
  EXPECT_GE(preloaded_count, 20U);
}

}  // namespace
}  // namespace trash_panda::plan
