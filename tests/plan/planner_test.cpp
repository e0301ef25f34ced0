#include "trash_panda/plan/planner.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"

#include "placement.h"
#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::uint64_t kBlock = 100 * kMiB;

PlanRequest max_ram(std::uint64_t bytes) {
  PlanRequest request;
  request.max_ram_bytes = bytes;
  return request;
}

TEST(SpreadEvenly, PutsEachInTheMiddleOfItsShare) {
  EXPECT_THAT(spread_evenly(0, 5), IsEmpty());
  EXPECT_THAT(spread_evenly(1, 5), ElementsAre(2));
  EXPECT_THAT(spread_evenly(2, 8), ElementsAre(2, 6));
  EXPECT_THAT(spread_evenly(3, 3), ElementsAre(0, 1, 2));
}

TEST(MakePlan, DoesNothingCleverWhenAllFitsInRam) {
  const Plan plan = make_plan(equal_model(8, kBlock, kBlock), machine(16 * kGiB), {}).value();
  EXPECT_EQ(tiers_of(plan), "rrrrrrrr");
  EXPECT_EQ(plan.slot_bytes, 0U);
  EXPECT_EQ(plan.lookahead_bytes, 0U);
  EXPECT_EQ(plan.ram_used_bytes(), 9 * kBlock);
  EXPECT_TRUE(plan.fits());
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(MakePlan, DoesNothingCleverWhenAllFitsInVram) {
  const Plan plan =
      make_plan(equal_model(8, kBlock, kBlock), machine_with_gpu(16 * kGiB, 12 * kGiB), {}).value();
  EXPECT_EQ(tiers_of(plan), "gggggggg");
  EXPECT_EQ(plan.slot_bytes, 0U);
  EXPECT_EQ(plan.compute_slot_bytes, 0U);
  EXPECT_EQ(plan.vram_used_bytes(), 9 * kBlock);
  EXPECT_EQ(plan.ram_used_bytes(), 0U);
}

TEST(MakePlan, FillsRamToTheByteBeforeItUsesDisk) {
  const ModelSummary model = equal_model(8, kBlock, kBlock);
  EXPECT_EQ(tiers_of(make_plan(model, machine(16 * kGiB), max_ram(9 * kBlock)).value()),
            "rrrrrrrr");
  // One byte short of everything: base, 3 slots and 4 blocks fit beside each other.
  EXPECT_EQ(tiers_of(make_plan(model, machine(16 * kGiB), max_ram(9 * kBlock - 1)).value()),
            "rdrdrdrd");
}

TEST(MakePlan, SpreadsDiskBlocksEvenly) {
  const Plan plan =
      make_plan(equal_model(12, kBlock, 0), machine(16 * kGiB), max_ram(11 * kBlock)).value();
  EXPECT_EQ(tiers_of(plan), "rdrrdrrdrrdr");
  EXPECT_EQ(plan.slot_bytes, 3 * kBlock);
  EXPECT_EQ(plan.lookahead_bytes, 2 * kBlock);
  EXPECT_EQ(plan.ram_used_bytes(), 11 * kBlock);
}

TEST(MakePlan, GivesUpLookaheadBeforeItGivesUp) {
  const ModelSummary model = equal_model(6, kBlock, 0);
  const Plan two = make_plan(model, machine(16 * kGiB), max_ram(2 * kBlock)).value();
  EXPECT_EQ(tiers_of(two), "dddddd");
  EXPECT_EQ(two.slot_bytes, 2 * kBlock);
  EXPECT_EQ(two.lookahead_bytes, kBlock);
  EXPECT_THAT(two.warnings, Contains(HasSubstr("lookahead")));
  EXPECT_EQ(make_plan(model, machine(16 * kGiB), max_ram(2 * kBlock - 1)).error().code(),
            ErrorCode::kDoesNotFit);
}

TEST(MakePlan, TakesNoMoreSlotsThanDiskBlocks) {
  PlanRequest request;
  request.assignments = {{Tier::kDisk, "0"}};
  const Plan plan = make_plan(equal_model(4, kBlock, 0), machine(16 * kGiB), request).value();
  EXPECT_EQ(tiers_of(plan), "drrr");
  EXPECT_EQ(plan.slot_bytes, kBlock);
}

TEST(MakePlan, HonoursALookaheadExactly) {
  PlanRequest request = max_ram(5 * kBlock);
  request.lookahead_blocks = 3;
  const Plan plan = make_plan(equal_model(8, kBlock, 0), machine(16 * kGiB), request).value();
  EXPECT_EQ(plan.lookahead_bytes, 3 * kBlock);
  EXPECT_EQ(plan.slot_bytes, 4 * kBlock);
  request.lookahead_blocks = 5;
  const auto refused = make_plan(equal_model(8, kBlock, 0), machine(16 * kGiB), request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(refused.error().hint(), HasSubstr("--lookahead"));
  ASSERT_TRUE(refused.error().shortage());
  EXPECT_GT(refused.error().shortage()->needed_bytes, refused.error().shortage()->budget_bytes);
  for (const std::uint64_t blocks : {0U, 100'000U}) {
    request.lookahead_blocks = blocks;
    EXPECT_EQ(make_plan(equal_model(8, kBlock, 0), machine(16 * kGiB), request).error().code(),
              ErrorCode::kUsage);
  }
}

/// Two on the CPU: the next block is made while one is used.
TEST(MakePlan, BooksTheExpandedBlocks) {
  ModelSummary model = equal_model(4, kBlock, kBlock);
  model.expansion_bytes_max = 2 * kBlock;
  const Plan ram = make_plan(model, machine(16 * kGiB), max_ram(9 * kBlock)).value();
  EXPECT_EQ(tiers_of(ram), "rrrr");
  EXPECT_EQ(ram.compute_slot_bytes, 4 * kBlock);
  EXPECT_EQ(ram.ram_used_bytes(), 9 * kBlock);
  EXPECT_NE(tiers_of(make_plan(model, machine(16 * kGiB), max_ram(9 * kBlock - 1)).value()),
            "rrrr");
  model.blocks.resize(1);
  EXPECT_EQ(make_plan(model, machine(16 * kGiB), {}).value().compute_slot_bytes, 2 * kBlock);
  PlanRequest on_gpu;
  on_gpu.max_vram_bytes = 10 * kBlock;
  model = equal_model(4, kBlock, kBlock);
  model.expansion_bytes_max = 2 * kBlock;
  EXPECT_EQ(
      make_plan(model, machine_with_gpu(16 * kGiB, 12 * kGiB), on_gpu).value().compute_slot_bytes,
      2 * kBlock);
}

TEST(MakePlan, SizesSlotsByTheLargestDiskBlockOnly) {
  // The big block stays in RAM: the slots are those of the small ones.
  const ModelSummary model =
      model_of({kBlock, kBlock, 4 * kBlock, kBlock, kBlock, kBlock, kBlock, kBlock}, 0);
  PlanRequest request = max_ram(8 * kBlock);
  request.assignments = {{Tier::kRam, "2"}};
  const Plan plan = make_plan(model, machine(16 * kGiB), request).value();
  EXPECT_EQ(plan.blocks[2].tier, Tier::kRam);
  EXPECT_EQ(plan.slot_bytes, 3 * kBlock);
  EXPECT_LE(plan.ram_used_bytes(), 8 * kBlock);
}

TEST(MakePlan, KeepsBaseInVramAndSpreadsStreamedBlocks) {
  PlanRequest request;
  // Base, two slots and four blocks.
  request.max_vram_bytes = 7 * kBlock;
  const Plan plan =
      make_plan(equal_model(8, kBlock, kBlock), machine_with_gpu(16 * kGiB, 12 * kGiB), request)
          .value();
  EXPECT_EQ(tiers_of(plan), "grgrgrgr");
  EXPECT_EQ(plan.block_count(Tier::kGpu), 4U);
  EXPECT_EQ(plan.compute_slot_bytes, 2 * kBlock);
  EXPECT_EQ(plan.vram_used_bytes(), 7 * kBlock);
  EXPECT_EQ(plan.ram_used_bytes(), 4 * kBlock);
}

TEST(MakePlan, UsesAllThreeTiers) {
  PlanRequest request = max_ram(5 * kBlock);
  request.max_vram_bytes = 7 * kBlock;
  const Plan plan =
      make_plan(equal_model(12, kBlock, kBlock), machine_with_gpu(16 * kGiB, 12 * kGiB), request)
          .value();
  EXPECT_EQ(plan.block_count(Tier::kGpu), 4U);
  EXPECT_EQ(plan.block_count(Tier::kRam), 2U);
  EXPECT_EQ(plan.block_count(Tier::kDisk), 6U);
  EXPECT_TRUE(plan.fits());
}

TEST(MakePlan, TiersSumToTheFileExactly) {
  ModelSummary model = model_of({1001, 2002, 3003, 4004}, 555);
  for (PlannedBlock& block : model.blocks) {
    block.extent_bytes = 4096;
  }
  const Plan plan = make_plan(model, machine(16 * kGiB), max_ram(13'000)).value();
  EXPECT_EQ(plan.stored_bytes(Tier::kBase), 555U);
  EXPECT_EQ(plan.stored_bytes(Tier::kBase) + plan.stored_bytes(Tier::kGpu) +
                plan.stored_bytes(Tier::kRam) + plan.stored_bytes(Tier::kDisk),
            model.total_bytes);
}

TEST(MakePlan, HonoursAssignmentsLaterOnesWin) {
  PlanRequest request;
  request.assignments = {{Tier::kDisk, "*"}, {Tier::kRam, "0,-1"}};
  const Plan plan = make_plan(equal_model(5, kBlock, 0), machine(16 * kGiB), request).value();
  EXPECT_EQ(tiers_of(plan), "rdddr");
}

TEST(MakePlan, HonoursResidentBlocksExactly) {
  PlanRequest request;
  request.resident_blocks = 3;
  const Hardware hardware = machine_with_gpu(16 * kGiB, 12 * kGiB);
  const Plan plan = make_plan(equal_model(8, kBlock, kBlock), hardware, request).value();
  EXPECT_EQ(plan.block_count(Tier::kGpu), 3U);
  request.resident_blocks = 0;
  EXPECT_EQ(tiers_of(make_plan(equal_model(8, kBlock, kBlock), hardware, request).value()),
            "rrrrrrrr");
  request.resident_blocks = 2;
  request.assignments = {{Tier::kGpu, "-1"}, {Tier::kDisk, "0"}};
  const Plan mixed = make_plan(equal_model(8, kBlock, kBlock), hardware, request).value();
  EXPECT_EQ(mixed.block_count(Tier::kGpu), 2U);
  EXPECT_EQ(mixed.blocks.front().tier, Tier::kDisk);
  EXPECT_EQ(mixed.blocks.back().tier, Tier::kGpu);
}

TEST(MakePlan, RefusesResidentBlocksThatDoNotFit) {
  PlanRequest request;
  request.max_vram_bytes = 5 * kBlock;
  request.resident_blocks = 4;
  const auto plan =
      make_plan(equal_model(8, kBlock, kBlock), machine_with_gpu(16 * kGiB, 12 * kGiB), request);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_EQ(plan.error().message(),
            "the plan needs 734 MB of VRAM and the budget is 524 MB: base 105 MB, 4 resident "
            "blocks 419 MB, compute slots 210 MB");
  EXPECT_EQ(plan.error().hint(), "a larger --max-vram or fewer --resident-blocks helps");
}

TEST(MakePlan, RefusesWithoutDiskWhatNeedsDisk) {
  PlanRequest request = max_ram(5 * kBlock);
  request.allow_disk = false;
  const auto plan = make_plan(equal_model(8, kBlock, kBlock), machine(16 * kGiB), request);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(plan.error().message(), HasSubstr("needs 944 MB of RAM and the budget is 524 MB"));
  EXPECT_EQ(plan.error().hint(), "a larger --max-ram or leaving out --no-disk helps");
  request.max_ram_bytes = 9 * kBlock;
  EXPECT_EQ(
      tiers_of(make_plan(equal_model(8, kBlock, kBlock), machine(16 * kGiB), request).value()),
      "rrrrrrrr");
}

TEST(MakePlan, RefusesABudgetTooSmallForBase) {
  const auto plan =
      make_plan(equal_model(8, kBlock, 3 * kBlock), machine(16 * kGiB), max_ram(2 * kBlock));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), ErrorCode::kDoesNotFit);
  EXPECT_THAT(plan.error().message(), HasSubstr("base 315 MB"));
  PlanRequest request;
  request.max_vram_bytes = 2 * kBlock;
  EXPECT_EQ(
      make_plan(equal_model(8, kBlock, 3 * kBlock), machine_with_gpu(16 * kGiB, 12 * kGiB), request)
          .error()
          .code(),
      ErrorCode::kDoesNotFit);
}

TEST(MakePlan, PlansForAMachineThatIsTooSmallAndSaysSo) {
  const Plan plan = make_plan(equal_model(4, 2 * kGiB, 3 * kGiB), machine(4 * kGiB), {}).value();
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(tiers_of(plan), "dddd");
  EXPECT_THAT(plan.warnings,
              ElementsAre("does not fit: needs 7.52 GB of RAM and the budget is 3.22 GB (of 4.29 "
                          "GB, ram): base 3.22 GB, slots for 4 disk blocks 4.29 GB"));
}

TEST(MakePlan, RefusesContradictions) {
  const ModelSummary model = equal_model(4, kBlock, 0);
  const auto code = [&model](const PlanRequest& request) {
    const auto plan = make_plan(model, machine_with_gpu(16 * kGiB, 12 * kGiB), request);
    return plan ? ErrorCode::kFailed : plan.error().code();
  };
  PlanRequest too_many;
  too_many.resident_blocks = 5;
  EXPECT_EQ(code(too_many), ErrorCode::kUsage);
  PlanRequest fewer_than_assigned;
  fewer_than_assigned.resident_blocks = 1;
  fewer_than_assigned.assignments = {{Tier::kGpu, "0-1"}};
  EXPECT_EQ(code(fewer_than_assigned), ErrorCode::kUsage);
  PlanRequest more_than_open;
  more_than_open.resident_blocks = 3;
  more_than_open.assignments = {{Tier::kRam, "0-1"}};
  EXPECT_EQ(code(more_than_open), ErrorCode::kUsage);
  PlanRequest no_disk;
  no_disk.allow_disk = false;
  no_disk.assignments = {{Tier::kDisk, "0"}};
  EXPECT_EQ(code(no_disk), ErrorCode::kUsage);
  PlanRequest to_base;
  to_base.assignments = {{Tier::kBase, "0"}};
  EXPECT_EQ(code(to_base), ErrorCode::kUsage);
  PlanRequest no_match;
  no_match.assignments = {{Tier::kRam, "nothing.*"}};
  EXPECT_EQ(code(no_match), ErrorCode::kUsage);
  PlanRequest dtype;
  dtype.compute_dtype = "int4";
  EXPECT_EQ(code(dtype), ErrorCode::kUsage);
}

TEST(MakePlan, RefusesVramWithoutAGpu) {
  PlanRequest resident;
  resident.resident_blocks = 1;
  PlanRequest assigned;
  assigned.assignments = {{Tier::kGpu, "0"}};
  for (const PlanRequest& request : {resident, assigned}) {
    const auto plan = make_plan(equal_model(4, kBlock, 0), machine(16 * kGiB), request);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code(), ErrorCode::kDoesNotFit);
    EXPECT_THAT(plan.error().hint(), HasSubstr("--max-vram"));
  }
}

TEST(MakePlan, WarnsOfWhatAUserShouldKnow) {
  EXPECT_THAT(make_plan(equal_model(0, 0, kBlock), machine(16 * kGiB), {}).value().warnings,
              Contains(HasSubstr("no blocks found")));
  EXPECT_THAT(make_plan(equal_model(2, kMiB, 3 * kGiB), machine(6 * kGiB), {}).value().warnings,
              Contains(HasSubstr("more than half")));
  Hardware busy = machine(16 * kGiB);
  busy.ram_available_bytes = kBlock;
  EXPECT_THAT(make_plan(equal_model(8, kBlock, 0), busy, {}).value().warnings,
              Contains(HasSubstr("available now")));
  Hardware full = machine_with_gpu(16 * kGiB, 12 * kGiB);
  full.gpus[0].free_bytes = kBlock;
  EXPECT_THAT(make_plan(equal_model(8, kBlock, 0), full, {}).value().warnings,
              Contains(HasSubstr("free now on Test GPU")));
}

TEST(MakePlan, RecordsWhatItWasMadeFor) {
  const ModelSummary model = equal_model(2, kBlock, 7);
  Hardware hardware = machine_with_gpu(16 * kGiB, 12 * kGiB);
  hardware.cgroup_limit_bytes = 4 * kGiB;
  const Plan plan = make_plan(model, hardware, {}).value();
  EXPECT_EQ(plan.model_path, model.path);
  EXPECT_EQ(plan.model_fingerprint, model.fingerprint);
  EXPECT_EQ(plan.model_bytes, model.total_bytes);
  EXPECT_EQ(plan.tensor_count, model.tensor_count);
  EXPECT_EQ(plan.ram_total_bytes, 16 * kGiB);
  EXPECT_EQ(plan.ram_limit_bytes, 4 * kGiB);
  EXPECT_EQ(plan.ram_limit_source, "cgroup");
  EXPECT_EQ(plan.gpu_name, "Test GPU");
  EXPECT_EQ(plan.vram_total_bytes, 12 * kGiB);
}

/// Random models, machines and requests: a plan never exceeds what was given, is repeatable, and
/// more memory never means more bytes from disk.
TEST(MakePlan, KeepsItsPromisesOnRandomInstances) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 engine(seed);
  int placed = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::uint64_t> sizes(engine() % 20);
    for (std::uint64_t& size_bytes : sizes) {
      size_bytes = (1 + engine() % 64) * 4096;
    }
    ModelSummary model = model_of(sizes, engine() % 200'000);
    model.expansion_bytes_max = engine() % 2 == 0 ? 0 : engine() % 400'000;
    PlanRequest request = max_ram(engine() % 4'000'000);
    if (engine() % 2 == 0) {
      request.max_vram_bytes = engine() % 4'000'000;
    }
    if (engine() % 3 == 0) {
      request.allow_disk = false;
    }
    const Hardware hardware = machine_with_gpu(16 * kGiB, 8 * kGiB);
    const auto plan = make_plan(model, hardware, request);
    EXPECT_EQ(plan.has_value(), make_plan(model, hardware, request).has_value());
    if (!plan) {
      EXPECT_EQ(plan.error().code(), ErrorCode::kDoesNotFit) << plan.error().to_string();
      continue;
    }
    ++placed;
    EXPECT_TRUE(plan->fits());
    EXPECT_EQ(*plan, make_plan(model, hardware, request).value());
    EXPECT_TRUE(request.allow_disk || plan->block_count(Tier::kDisk) == 0);
    EXPECT_EQ(plan->slot_bytes == 0, plan->block_count(Tier::kDisk) == 0);
    if (plan->uses_vram()) {
      continue;
    }
    PlanRequest roomier = request;
    roomier.max_ram_bytes = *request.max_ram_bytes + engine() % 1'000'000;
    // Once the lookahead is whole, more RAM can only help.
    if (plan->block_count(Tier::kDisk) > 2 && plan->slot_bytes * 2 == plan->lookahead_bytes * 3) {
      EXPECT_LE(make_plan(model, hardware, roomier).value().stored_bytes(Tier::kDisk),
                plan->stored_bytes(Tier::kDisk));
    }
  }
  EXPECT_GT(placed, 200);
}

}  // namespace
}  // namespace trash_panda::plan
