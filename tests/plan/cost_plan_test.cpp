// Plans of measured machines: placement by simulated pass, storage forms, predictions.
#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trash_panda/base/units.h"
#include "trash_panda/plan/plan_toml.h"
#include "trash_panda/plan/planner.h"
#include "trash_panda/plan/prediction.h"

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr std::uint64_t kFp8Block = 373'000'000;
constexpr double kHardCaseComputeS = 9.3;

/// 28 equal blocks; fp8 ones are expanded to twice their size.
ModelSummary hard_case_model(std::uint64_t block_bytes, std::uint64_t expanded_bytes) {
  ModelSummary model = equal_model(28, block_bytes, 100 * kMiB);
  const bool is_fp8 = block_bytes != expanded_bytes;
  for (PlannedBlock& block : model.blocks) {
    block.expanded_bytes = expanded_bytes;
    block.expand_bytes = is_fp8 ? block_bytes : 0;
    model.contents.push_back(
        {.bf16_bytes = is_fp8 ? 0 : block_bytes, .fp8_bytes = is_fp8 ? block_bytes : 0});
  }
  model.expansion_bytes_max = is_fp8 ? expanded_bytes : 0;
  return model;
}

/// A 12 GB card on a 12 GB/s link, and a SATA drive.
Hardware hard_case_machine() {
  Hardware hardware = machine_with_gpu(16 * kGiB, 12'000'000'000);
  hardware.measured_at = "2026-01-01T00:00:00Z";
  hardware.disks.emplace_back().read_bytes_per_s = 400'000'000;
  hardware.gpus[0].h2d_pinned_bytes_per_s = 12'000'000'000;
  hardware.gpus[0].expand.fp8_bytes_per_s = 200'000'000'000;
  hardware.gpus[0].expand.exponent_bytes_per_s = 200'000'000'000;
  return hardware;
}

/// VRAM for 8 resident blocks, RAM for 9 beside three slots: all but 11.
PlanRequest hard_case_request(std::uint64_t block_bytes, const ModelSummary& model) {
  PlanRequest request;
  request.compute_s = kHardCaseComputeS;
  request.max_vram_bytes =
      model.base_expanded_bytes + model.expansion_bytes_max + (8 + 2) * block_bytes;
  request.max_ram_bytes = (9 + 3) * block_bytes;
  return request;
}

TEST(CostPlan, MeetsTheBoundOfTheHardCase) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  PlanRequest request = hard_case_request(kFp8Block, model);
  constexpr double kBoundS = 11 * 373e6 / 400e6;  // 11 blocks from the disk: 10.26 s.
  // With a slot less there is room for one more block in RAM.
  EXPECT_LE(make_plan(model, hard_case_machine(), request).value().predicted->pass_s, kBoundS);
  request.lookahead_blocks = 2;
  const Plan plan = make_plan(model, hard_case_machine(), request).value();
  ASSERT_TRUE(plan.predicted);
  EXPECT_LE(plan.predicted->pass_s, 1.02 * kBoundS);
  EXPECT_EQ(plan.block_count(Tier::kDisk), 11U);
  EXPECT_TRUE(plan.fits());
  EXPECT_EQ(plan.block_count(Tier::kGpu), 8U);
  EXPECT_EQ(plan.predicted->limiting, "disk");
  EXPECT_GE(plan.predicted->pass_s, plan.predicted->bound_s);
  EXPECT_GT(plan.predicted->first_pass_s, plan.predicted->pass_s);
}

/// The hard case in bf16, raw and coded, in between other disks and links.
class CodedHardCase {
 public:
  /// @param ram_block_count  Raw blocks that RAM has room for, beside three slots.
  explicit CodedHardCase(std::uint64_t ram_block_count)
      : model_(hard_case_model(kBlockBytes, kBlockBytes)) {
    request_ = hard_case_request(kBlockBytes, model_);
    request_.max_ram_bytes = (ram_block_count + 3) * kBlockBytes;
  }

  [[nodiscard]] Plan plan(std::uint64_t disk_bytes_per_s, std::uint64_t link_bytes_per_s,
                          bool is_coded) {
    Hardware hardware = hard_case_machine();
    hardware.disks[0].read_bytes_per_s = disk_bytes_per_s;
    hardware.gpus[0].h2d_pinned_bytes_per_s = link_bytes_per_s;
    request_.forms.clear();
    if (is_coded) {
      request_.forms = {StorageForm::kExponent};
    }
    return make_plan(model_, hardware, request_).value();
  }

  static constexpr std::uint64_t kBlockBytes = 2 * kFp8Block;  ///< 746 MB.

 private:
  ModelSummary model_;
  PlanRequest request_;
};

TEST(CostPlan, PredictsCodedBf16FasterWhereDiskOrLinkBinds) {
  std::map<std::string, int> bound_counts;
  for (const std::uint64_t ram_block_count : {9U, 2U}) {
    CodedHardCase hard_case(ram_block_count);
    for (const std::uint64_t disk : {100U, 200U, 400U, 550U, 1000U, 3500U}) {
      for (const std::uint64_t link : {300U, 900U, 3000U, 12'000U}) {
        const Plan raw = hard_case.plan(disk * 1'000'000, link * 1'000'000, /*is_coded=*/false);
        const Plan coded = hard_case.plan(disk * 1'000'000, link * 1'000'000, /*is_coded=*/true);
        ASSERT_TRUE(raw.predicted && coded.predicted);
        EXPECT_LE(coded.predicted->pass_s, raw.predicted->pass_s);
        EXPECT_TRUE(coded.fits());
        // Where the computation binds once blocks are coded, more can't be had than it leaves.
        const bool can_win = raw.predicted->bound_s >= 1.4 * kHardCaseComputeS;
        if (can_win || coded.predicted->limiting != "compute") {
          ++bound_counts[raw.predicted->limiting];
          EXPECT_GE(raw.predicted->pass_s, 1.35 * coded.predicted->pass_s)
              << "disk " << disk << " MB/s, link " << link << " MB/s, RAM for " << ram_block_count;
        }
      }
    }
  }
  EXPECT_GE(bound_counts["disk"], 4);
  EXPECT_GE(bound_counts["link"], 4);
}

TEST(CostPlan, PredictsTheHardCaseInBf16FasterCoded) {
  // Its own SATA disk and link: 11 raw blocks of 746 MB take 20.5 s to read.
  CodedHardCase hard_case(9);
  const Plan raw = hard_case.plan(400'000'000, 12'000'000'000, /*is_coded=*/false);
  const Plan coded = hard_case.plan(400'000'000, 12'000'000'000, /*is_coded=*/true);
  EXPECT_EQ(raw.predicted->limiting, "disk");
  EXPECT_GE(raw.predicted->pass_s, 1.35 * coded.predicted->pass_s);
}

TEST(CostPlan, DecodesBf16AtTheRateOfItsOwnCode) {
  const std::uint64_t block_bytes = 2 * kFp8Block;
  const ModelSummary model = hard_case_model(block_bytes, block_bytes);
  Hardware hardware = hard_case_machine();
  hardware.gpus[0].expand.fp8_bytes_per_s = 500'000'000;  // There is no fp8 in the model.
  PlanRequest request = hard_case_request(block_bytes, model);
  request.forms = {StorageForm::kExponent};
  const Plan plan = make_plan(model, hardware, request).value();
  EXPECT_EQ(plan.rates.expand_bytes_per_s, hardware.gpus[0].expand.exponent_bytes_per_s);
  EXPECT_TRUE(std::ranges::any_of(
      plan.blocks, [](const PlannedBlock& block) { return block.form == StorageForm::kExponent; }));
}

TEST(CostPlan, HoldsMoreCodedBlocksInTheSameMemory) {
  // 1 / 0.68 = 1.47 times as many, in VRAM beside the block that is expanded, and in RAM.
  constexpr std::uint64_t kBlock = 100 * kMiB;
  constexpr std::size_t kRawCount = 50;
  const ModelSummary model = [] {
    ModelSummary large = equal_model(150, kBlock, 0);
    large.contents.assign(150, {.bf16_bytes = kBlock, .fp8_bytes = 0});
    return large;
  }();
  Hardware hardware = hard_case_machine();
  hardware.gpus[0].total_bytes = hardware.gpus[0].free_bytes = 100 * kGiB;
  hardware.ram_total_bytes = hardware.ram_available_bytes = 100 * kGiB;
  hardware.disks[0].read_bytes_per_s = 100'000'000;  // Memory is what helps.
  hardware.gpus[0].h2d_pinned_bytes_per_s = 1'000'000'000;
  PlanRequest request;
  request.compute_s = 0.1;
  const auto count = [&](Tier tier, std::uint64_t memory_bytes, bool is_coded) {
    // Beside the blocks: three slots of either kind at most, and the expanded block.
    request.max_vram_bytes = (tier == Tier::kGpu ? memory_bytes : 0) + 4 * kBlock;
    request.max_ram_bytes = (tier == Tier::kRam ? memory_bytes : 0) + 3 * kBlock;
    request.lookahead_blocks = 2;
    request.forms.clear();
    if (is_coded) {
      request.forms = {StorageForm::kExponent};
    }
    return make_plan(model, hardware, request).value().block_count(tier);
  };
  for (const Tier tier : {Tier::kGpu, Tier::kRam}) {
    const std::size_t coded_count = count(tier, kRawCount * kBlock, /*is_coded=*/true);
    const std::size_t raw_count = count(tier, kRawCount * kBlock, /*is_coded=*/false);
    EXPECT_GE(raw_count, kRawCount);
    EXPECT_GE(static_cast<double>(coded_count), 1.47 * kRawCount) << format::tier_name(tier);
    // No more than what the memory beside the blocks allows for too.
    EXPECT_LE(static_cast<double>(coded_count), 1.48 * (kRawCount + 4));
  }
}

TEST(CostPlan, PromisesNoFormThatPacksDoNotHold) {
  const std::uint64_t block_bytes = 2 * kFp8Block;
  const ModelSummary model = hard_case_model(block_bytes, block_bytes);
  const Plan plan =
      make_plan(model, hard_case_machine(), hard_case_request(block_bytes, model)).value();
  for (const PlannedBlock& block : plan.blocks) {
    EXPECT_EQ(block.form, StorageForm::kRaw);
  }
}

TEST(CostPlan, OffersNoFormThatSavesNextToNothing) {
  // As in fp8 checkpoints, where only norms and biases are bf16.
  ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  for (BlockContent& content : model.contents) {
    content.bf16_bytes = 20'000;
  }
  PlanRequest request = hard_case_request(kFp8Block, model);
  request.forms = {StorageForm::kExponent};
  const Plan plan = make_plan(model, hard_case_machine(), request).value();
  EXPECT_EQ(std::ranges::count(plan.blocks, StorageForm::kRaw, &PlannedBlock::form), 28);
  // And so nothing is decoded at the rate of a code that isn't there.
  EXPECT_EQ(plan.rates.expand_bytes_per_s, hard_case_machine().gpus[0].expand.fp8_bytes_per_s);
}

TEST(CostPlan, CountsWithTheCpuWhereThereIsNoVramToPlanFor) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  Hardware hardware = hard_case_machine();
  hardware.cpu.expand.fp8_bytes_per_s = 5'000'000'000;
  PlanRequest request;
  request.compute_s = kHardCaseComputeS;
  request.headroom_vram_bytes = hardware.gpus[0].total_bytes;
  const Plan plan = make_plan(model, hardware, request).value();
  EXPECT_FALSE(plan.uses_vram());
  EXPECT_EQ(plan.rates.expand_bytes_per_s, 5'000'000'000U);
}

TEST(CostPlan, CompressesTheDiskTierWhereTheDiskIsSlow) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  Hardware hardware = hard_case_machine();
  hardware.cpu.expand.zstd_bytes_per_s = 1'000'000'000;
  PlanRequest request = hard_case_request(kFp8Block, model);
  request.forms = {StorageForm::kZstd};
  const auto zstd_count = [&] {
    return std::ranges::count(make_plan(model, hardware, request).value().blocks,
                              StorageForm::kZstd, &PlannedBlock::form);
  };
  hardware.disks[0].read_bytes_per_s = 100'000'000;
  EXPECT_GT(zstd_count(), 0);
  hardware.disks[0].read_bytes_per_s = 7'000'000'000;
  EXPECT_EQ(zstd_count(), 0);
}

TEST(CostPlan, IsNeverSlowerThanSimplerPlacements) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  for (const std::uint64_t disk : {200'000'000ULL, 500'000'000ULL, 2'000'000'000ULL}) {
    Hardware hardware = hard_case_machine();
    hardware.disks[0].read_bytes_per_s = disk;
    PlanRequest request = hard_case_request(kFp8Block, model);
    const double cost_s = make_plan(model, hardware, request).value().predicted->pass_s;
    // All residents first, the disk blocks last.
    PlanRequest prefix = request;
    prefix.assignments = {{Tier::kGpu, "0-7"}, {Tier::kRam, "8-16"}, {Tier::kDisk, "17--1"}};
    EXPECT_LE(cost_s, make_plan(model, hardware, prefix).value().predicted->pass_s);
    request.placement = PlacementMethod::kGreedy;
    EXPECT_LE(cost_s, make_plan(model, hardware, request).value().predicted->pass_s);
  }
}

TEST(CostPlan, DoesNothingCleverWhenAllFits) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  PlanRequest request;
  request.compute_s = 1;
  Hardware hardware = hard_case_machine();
  hardware.gpus[0].total_bytes = hardware.gpus[0].free_bytes = 24'000'000'000;
  const Plan plan = make_plan(model, hardware, request).value();
  EXPECT_EQ(plan.block_count(Tier::kGpu), 28U);
  EXPECT_EQ(plan.host_slot_count, 0U);
  EXPECT_EQ(plan.device_slot_count, 0U);
  EXPECT_EQ(plan.predicted->limiting, "compute");
  EXPECT_NEAR(plan.predicted->stall_s, 0, 1e-9);
}

TEST(CostPlan, LeavesPredictionsOutWhereTheDiskWasNotMeasured) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  Hardware hardware = hard_case_machine();
  hardware.disks.clear();
  const Plan plan = make_plan(model, hardware, hard_case_request(kFp8Block, model)).value();
  EXPECT_FALSE(plan.predicted);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("disk not measured")));
  EXPECT_TRUE(plan.fits());
}

TEST(CostPlan, EstimatesComputationByReadingTheWeightsAndSaysSo) {
  Hardware hardware = machine(16 * kGiB);
  hardware.disks.emplace_back().read_bytes_per_s = 1'000'000'000;
  hardware.ram_copy_bytes_per_s = 10'000'000'000;
  const Plan plan = make_plan(equal_model(4, 1'000'000'000, 0), hardware, {}).value();
  EXPECT_EQ(plan.compute_source, "estimate");
  EXPECT_DOUBLE_EQ(plan.blocks[0].compute_s, 0.1);
  EXPECT_NEAR(plan.predicted->pass_s, 0.4, 1e-9);
  EXPECT_NEAR(plan.predicted->first_pass_s, 4.1, 0.01);
}

TEST(CostPlan, TakesComputationFromAProfile) {
  PlanRequest request;
  request.profile_s = std::vector<double>{1, 2, 3};
  const Plan plan = make_plan(equal_model(3, kMiB, 0), machine(16 * kGiB), request).value();
  EXPECT_EQ(plan.compute_source, "profile");
  EXPECT_EQ(plan.blocks[2].compute_s, 3);
  EXPECT_NEAR(plan.predicted->pass_s, 6, 1e-9);
  request.profile_s = std::vector<double>{1};
  EXPECT_EQ(make_plan(equal_model(3, kMiB, 0), machine(16 * kGiB), request).error().code(),
            ErrorCode::kUsage);
}

TEST(CostPlan, KeepsRoomForTheKvCache) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  PlanRequest request = hard_case_request(kFp8Block, model);
  request.kv_cache_bytes = 2 * kFp8Block;
  const Plan plan = make_plan(model, hard_case_machine(), request).value();
  EXPECT_EQ(plan.block_count(Tier::kGpu), 6U);
  EXPECT_LE(plan.vram_used_bytes(), *request.max_vram_bytes);
}

TEST(CostPlan, PredictsTheSameFromItsFile) {
  const ModelSummary model = hard_case_model(2 * kFp8Block, 2 * kFp8Block);
  PlanRequest request = hard_case_request(2 * kFp8Block, model);
  request.forms = {StorageForm::kExponent};
  Plan plan = make_plan(model, hard_case_machine(), request).value();
  plan.warnings.clear();
  const std::string text = write_plan_toml(plan);
  const Plan read = parse_plan_toml(text, "p.toml").value();
  EXPECT_EQ(read, plan);
  EXPECT_EQ(predict(read), plan.predicted);
  EXPECT_EQ(write_plan_toml(make_plan(model, hard_case_machine(), request).value()), text);
}

TEST(CostPlan, ListsEveryBlockOfATierForDemotionOnce) {
  const ModelSummary model = hard_case_model(kFp8Block, 2 * kFp8Block);
  const Plan plan =
      make_plan(model, hard_case_machine(), hard_case_request(kFp8Block, model)).value();
  for (const auto& [tier, order] :
       {std::pair(Tier::kGpu, plan.demote_gpu), std::pair(Tier::kRam, plan.demote_ram)}) {
    std::vector<std::uint64_t> sorted = order;
    std::ranges::sort(sorted);
    std::vector<std::uint64_t> expected;
    for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
      if (plan.blocks[index].tier == tier) {
        expected.push_back(index);
      }
    }
    EXPECT_EQ(sorted, expected);
  }
}

}  // namespace
}  // namespace trash_panda::plan
