#include "simulation_settings.h"

#include <gtest/gtest.h>

#include "trash_panda/plan/planner.h"
#include "trash_panda/plan/prediction.h"

#include "plan/support/models.h"

namespace trash_panda::cli {
namespace {

constexpr std::uint64_t kBlockBytes = 400'000'000;

/// Blocks of which every second one is bf16 by so many per cent more than the others, the rest fp8.
plan::ModelSummary mixed_model(std::uint64_t bf16_percent, std::uint64_t more_percent) {
  plan::ModelSummary model = plan::equal_model(12, kBlockBytes, 1'000'000);
  for (std::size_t index = 0; index < model.blocks.size(); ++index) {
    const std::uint64_t percent = bf16_percent + (index % 2 == 0 ? 0 : more_percent);
    const std::uint64_t bf16_bytes = kBlockBytes / 100 * percent;
    const std::uint64_t fp8_bytes = kBlockBytes - bf16_bytes;
    model.contents.push_back({.bf16_bytes = bf16_bytes, .fp8_bytes = fp8_bytes});
    model.blocks[index].expand_bytes = fp8_bytes;
    model.blocks[index].expanded_bytes = bf16_bytes + 2 * fp8_bytes;
    model.expansion_bytes_max =
        std::max(model.expansion_bytes_max, model.blocks[index].expanded_bytes);
  }
  return model;
}

plan::Hardware measured_machine(std::uint64_t fp8_bytes_per_s, std::uint64_t exponent_bytes_per_s) {
  plan::Hardware hardware = plan::machine_with_gpu(16'000'000'000, 12'000'000'000);
  hardware.measured_at = "2026-01-01T00:00:00Z";
  hardware.disks.emplace_back().read_bytes_per_s = 600'000'000;
  hardware.cpu.expand.zstd_bytes_per_s = 2'000'000'000;
  hardware.cpu.expand.fp8_bytes_per_s = fp8_bytes_per_s / 2;
  hardware.cpu.expand.exponent_bytes_per_s = exponent_bytes_per_s / 2;
  hardware.gpus[0].h2d_pinned_bytes_per_s = 6'000'000'000;
  hardware.gpus[0].expand = {.fp8_bytes_per_s = fp8_bytes_per_s,
                             .exponent_bytes_per_s = exponent_bytes_per_s,
                             .zstd_bytes_per_s = {}};
  return hardware;
}

TEST(UseHardware, TheMachineOfThePlanPredictsWhatThePlanDoes) {
  using enum plan::StorageForm;
  std::size_t mixed_count = 0;
  for (const std::uint64_t bf16_percent : {0U, 1U, 7U, 50U, 100U}) {
    for (const std::uint64_t more_percent : {0U, 40U}) {
      const plan::ModelSummary model =
          mixed_model(bf16_percent, std::min<std::uint64_t>(more_percent, 100 - bf16_percent));
      for (const auto& [fp8, exponent] :
           {std::pair(3'000'000'000U, 1'000'000'000U), std::pair(1'000'000'000U, 3'000'000'000U)}) {
        for (const std::uint64_t vram_bytes : {std::uint64_t{3'000'000'000}, std::uint64_t{0}}) {
          const plan::Hardware hardware = measured_machine(fp8, exponent);
          plan::PlanRequest request;
          request.forms = {kExponent, kZstd};
          request.compute_s = 0.5;
          request.max_ram_bytes = 4'000'000'000;
          request.max_vram_bytes = vram_bytes;
          const plan::Plan made = plan::make_plan(model, hardware, request).value();
          ASSERT_TRUE(made.predicted);
          plan::Plan simulated = made;
          use_hardware(hardware, simulated);
          EXPECT_EQ(simulated.rates, made.rates) << bf16_percent << " % and " << more_percent;
          EXPECT_EQ(plan::predict(simulated), made.predicted);
          const auto coded_count =
              std::ranges::count(made.blocks, kExponent, &plan::PlannedBlock::form);
          mixed_count += coded_count > 0 && coded_count < 12 ? 1U : 0U;
        }
      }
    }
  }
  EXPECT_GT(mixed_count, 0U);
}

}  // namespace
}  // namespace trash_panda::cli
