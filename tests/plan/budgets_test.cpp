#include "budgets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/support/models.h"

namespace trash_panda::plan {
namespace {

using ::testing::HasSubstr;

TEST(DeriveBudgets, TakesTheSmallerOfRamAndCgroup) {
  Hardware hardware = machine(64 * kGiB);
  EXPECT_EQ(derive_budgets(hardware, {}).value().ram_limit_source, "ram");
  hardware.cgroup_limit_bytes = 2 * kGiB;
  const Budgets budgets = derive_budgets(hardware, {}).value();
  EXPECT_EQ(budgets.ram_limit_source, "cgroup");
  EXPECT_EQ(budgets.ram_limit_bytes, 2 * kGiB);
  EXPECT_EQ(budgets.ram.bytes, 1 * kGiB);
  hardware.cgroup_limit_bytes = 65 * kGiB;
  EXPECT_EQ(derive_budgets(hardware, {}).value().ram_limit_source, "ram");
}

TEST(DeriveBudgets, ReservesEightPercentWithinOneToFourGib) {
  const auto ram = [](std::uint64_t total_bytes) {
    return derive_budgets(machine(total_bytes), {}).value().ram.bytes;
  };
  EXPECT_EQ(ram(8 * kGiB), 7 * kGiB);
  EXPECT_EQ(ram(128 * kGiB), 124 * kGiB);
  // 8 % of 25 GiB are 2 GiB.
  EXPECT_EQ(ram(25 * kGiB), 23 * kGiB);
  // Where a gibibyte would be all, half stays.
  EXPECT_EQ(ram(1 * kGiB), 512 * kMiB);
}

TEST(DeriveBudgets, RoundsAutomaticBudgetsDownSoThatPlansRepeat) {
  EXPECT_EQ(derive_budgets(machine(16 * kGiB + 3), {}).value().ram.bytes,
            derive_budgets(machine(16 * kGiB + 20 * kMiB), {}).value().ram.bytes);
  EXPECT_EQ(round_budget_down(256 * kMiB), 256 * kMiB);
  EXPECT_EQ(round_budget_down(256 * kMiB - 1), 255 * kMiB);
  EXPECT_EQ(round_budget_down(512 * kMiB - 1), 256 * kMiB);
  EXPECT_EQ(round_budget_down(kMiB - 1), 0U);
}

TEST(DeriveBudgets, HonoursMaxRamExactly) {
  PlanRequest request;
  request.max_ram_bytes = 123'456'789;
  const Budgets budgets = derive_budgets(machine(16 * kGiB), request).value();
  EXPECT_EQ(budgets.ram.bytes, 123'456'789U);
  EXPECT_TRUE(budgets.ram.is_given);
  EXPECT_TRUE(budgets.warnings.empty());
}

TEST(DeriveBudgets, KeepsMaxRamWithinTheLimit) {
  Hardware hardware = machine(16 * kGiB);
  hardware.cgroup_limit_bytes = 2 * kGiB;
  PlanRequest request;
  request.max_ram_bytes = 8 * kGiB;
  const Budgets budgets = derive_budgets(hardware, request).value();
  EXPECT_EQ(budgets.ram.bytes, 2 * kGiB);
  ASSERT_EQ(budgets.warnings.size(), 1U);
  EXPECT_THAT(budgets.warnings[0], HasSubstr("cgroup"));
  request.min_free_ram_bytes = kGiB;
  EXPECT_EQ(derive_budgets(hardware, request).value().ram.bytes, kGiB);
}

TEST(DeriveBudgets, HonoursMinFreeRam) {
  PlanRequest request;
  request.min_free_ram_bytes = 6 * kGiB;
  EXPECT_EQ(derive_budgets(machine(16 * kGiB), request).value().ram.bytes, 10 * kGiB);
  request.min_free_ram_bytes = 16 * kGiB;
  const auto budgets = derive_budgets(machine(16 * kGiB), request);
  ASSERT_FALSE(budgets);
  EXPECT_EQ(budgets.error().code(), ErrorCode::kDoesNotFit);
}

TEST(DeriveBudgets, NeedsToKnowTheSizeOfRam) {
  ASSERT_FALSE(derive_budgets(machine(0), {}));
  EXPECT_EQ(derive_budgets(machine(0), {}).error().code(), ErrorCode::kDevice);
  PlanRequest request;
  request.max_ram_bytes = kGiB;
  EXPECT_EQ(derive_budgets(machine(0), request).value().ram.bytes, kGiB);
}

TEST(DeriveBudgets, KeepsHeadroomInVram) {
  const Budgets budgets = derive_budgets(machine_with_gpu(16 * kGiB, 12 * kGiB), {}).value();
  // 12 GiB less 1.5 GB are 10.6 GiB.
  EXPECT_EQ(budgets.vram.bytes, 10 * kGiB + 512 * kMiB);
  EXPECT_EQ(budgets.gpu_name, "Test GPU");
  ASSERT_EQ(budgets.warnings.size(), 1U);
  EXPECT_THAT(budgets.warnings[0], HasSubstr("--activation-vram"));
}

TEST(DeriveBudgets, ReservesActivationsAndATwentiethOfVram) {
  PlanRequest request;
  request.activation_vram_bytes = 2 * kGiB;
  EXPECT_EQ(derive_budgets(machine_with_gpu(16 * kGiB, 20 * kGiB), request).value().vram.bytes,
            17 * kGiB);
  // At least half a gibibyte.
  EXPECT_EQ(derive_budgets(machine_with_gpu(16 * kGiB, 4 * kGiB), request).value().vram.bytes,
            1 * kGiB + 512 * kMiB);
  request.activation_vram_bytes = ~std::uint64_t{0};
  EXPECT_EQ(derive_budgets(machine_with_gpu(16 * kGiB, 4 * kGiB), request).value().vram.bytes, 0U);
}

TEST(DeriveBudgets, HonoursMaxVramExactly) {
  PlanRequest request;
  request.max_vram_bytes = 1'000'000'001;
  EXPECT_EQ(derive_budgets(machine_with_gpu(16 * kGiB, 12 * kGiB), request).value().vram.bytes,
            1'000'000'001U);
  request.max_vram_bytes = 20 * kGiB;
  const Budgets budgets = derive_budgets(machine_with_gpu(16 * kGiB, 12 * kGiB), request).value();
  EXPECT_EQ(budgets.vram.bytes, 12 * kGiB);
  EXPECT_EQ(budgets.warnings.size(), 1U);
}

TEST(DeriveBudgets, PlansForAGpuElsewhereAndSaysSo) {
  EXPECT_EQ(derive_budgets(machine(16 * kGiB), {}).value().vram.bytes, 0U);
  PlanRequest request;
  request.max_vram_bytes = 8 * kGiB;
  const Budgets budgets = derive_budgets(machine(16 * kGiB), request).value();
  EXPECT_EQ(budgets.vram.bytes, 8 * kGiB);
  ASSERT_EQ(budgets.warnings.size(), 1U);
  EXPECT_THAT(budgets.warnings[0], HasSubstr("no NVIDIA driver"));
}

TEST(DeriveBudgets, RefusesAGpuThatIsNotThere) {
  PlanRequest request;
  request.gpu_index = 1;
  for (const Hardware& hardware : {machine(kGiB), machine_with_gpu(kGiB, kGiB)}) {
    const auto budgets = derive_budgets(hardware, request);
    ASSERT_FALSE(budgets);
    EXPECT_EQ(budgets.error().code(), ErrorCode::kDevice);
  }
}

TEST(PlanHeadroom, IsWhatTheRequestLeavesFree) {
  Plan plan;
  plan.vram_total_bytes = 20 * kGiB;
  EXPECT_EQ(plan.vram_headroom_bytes(), 0U);
  plan.vram_budget_bytes = 12 * kGiB;
  plan.request.headroom_vram_bytes = 3 * kGiB;
  EXPECT_EQ(plan.vram_headroom_bytes(), 3 * kGiB);
  plan.request.activation_vram_bytes = 2 * kGiB;
  EXPECT_EQ(plan.vram_headroom_bytes(), 2 * kGiB + 20 * kGiB / 100 * 5);
  EXPECT_EQ(vram_reserve_bytes(8 * kGiB), 512 * kMiB);
  // --max-vram said that less is enough.
  plan.vram_budget_bytes = 19 * kGiB;
  EXPECT_EQ(plan.vram_headroom_bytes(), 1 * kGiB);
  plan.vram_total_bytes = 0;  // Of a GPU elsewhere.
  EXPECT_EQ(plan.vram_headroom_bytes(), 0U);
}

}  // namespace
}  // namespace trash_panda::plan
