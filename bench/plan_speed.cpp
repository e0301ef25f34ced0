// CPU time of planning once a checkpoint's headers were read: the placement, its prediction, and
// the advice on more memory that `plan` gives, in the sizes and forms that make it longest.
//
//   cmake -B build/release -DTP_BUILD_BENCH=ON && ninja -C build/release plan_speed
//   build/release/bench/plan_speed
#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "trash_panda/plan/advice.h"
#include "trash_panda/plan/planner.h"

namespace {

using namespace trash_panda::plan;  // NOLINT(google-build-using-namespace): its own benchmark.

enum class Sizes { kTwoKinds, kAllDifferent };
enum class Forms { kRaw, kAll };

PlannedBlock block_of(std::size_t index, std::uint64_t bytes) {
  PlannedBlock block;
  block.name = fmt::format("layers.{}", index);
  block.stored_bytes = block.extent_bytes = bytes;
  block.expanded_bytes = 2 * bytes;
  block.expand_bytes = bytes;
  return block;
}

/// Blocks of 340 and 141 MB, one third of them large, or of 50 to 500 MB each, half bf16.
ModelSummary model_of(std::size_t block_count, Sizes sizes) {
  std::mt19937_64 engine(1);  // The same model in each run.
  ModelSummary model;
  model.base_stored_bytes = model.base_expanded_bytes = 500'000'000;
  model.total_bytes = model.base_stored_bytes;
  for (std::size_t index = 0; index < block_count; ++index) {
    const std::uint64_t two_kinds_bytes = 3 * index < block_count ? 340'000'000 : 141'000'000;
    const std::uint64_t bytes =
        sizes == Sizes::kTwoKinds ? two_kinds_bytes : 50'000'000 + engine() % 450'000'000;
    model.blocks.push_back(block_of(index, bytes));
    model.contents.push_back({.bf16_bytes = bytes / 2, .fp8_bytes = bytes / 2});
    model.total_bytes += bytes;
    model.expansion_bytes_max = std::max(model.expansion_bytes_max, 2 * bytes);
  }
  return model;
}

/// VRAM for a third of the model and RAM for another; drive, link and computation take about the
/// same time, so that no placement is good enough at once.
Hardware machine_for(const ModelSummary& model) {
  Hardware hardware;
  hardware.measured_at = "2026-01-01T00:00:00Z";
  hardware.ram_total_bytes = hardware.ram_available_bytes = model.total_bytes / 3 + 6'000'000'000;
  hardware.cpu.expand.zstd_bytes_per_s = 3'000'000'000;
  hardware.disks.emplace_back().read_bytes_per_s = 2'000'000'000;
  GpuInfo& gpu = hardware.gpus.emplace_back();
  gpu.name = "GPU";
  gpu.total_bytes = gpu.free_bytes = model.total_bytes / 3 + 4'000'000'000;
  gpu.h2d_pinned_bytes_per_s = 4'000'000'000;
  gpu.expand.fp8_bytes_per_s = 200'000'000'000;
  gpu.expand.exponent_bytes_per_s = 200'000'000'000;
  return hardware;
}

/// A measured profile, uneven as the blocks are.
PlanRequest request_for(const ModelSummary& model, Forms forms) {
  std::mt19937_64 engine(2);
  PlanRequest request;
  std::vector<double>& profile_s = request.profile_s.emplace();
  for (const PlannedBlock& block : model.blocks) {
    const double noise = 0.5 + static_cast<double>(engine() % 1000) / 1000;
    profile_s.push_back(static_cast<double>(block.stored_bytes) / 6e9 * noise);
  }
  if (forms == Forms::kAll) {
    request.forms = {StorageForm::kExponent, StorageForm::kZstd};
  }
  return request;
}

void plan_model(benchmark::State& state, Sizes sizes, Forms forms) {
  const ModelSummary model = model_of(static_cast<std::size_t>(state.range(0)), sizes);
  const Hardware hardware = machine_for(model);
  const PlanRequest request = request_for(model, forms);
  double pass_s = 0;
  double bound_s = 0;
  for ([[maybe_unused]] const auto iteration : state) {
    const trash_panda::Result<Plan> plan = make_plan(model, hardware, request);
    if (!plan || !plan->predicted) {
      state.SkipWithError("the model was not planned");
      return;
    }
    benchmark::DoNotOptimize(advise_more_ram(model, hardware, request, *plan));
    benchmark::DoNotOptimize(advise_more_vram(model, hardware, request, *plan));
    pass_s = plan->predicted->pass_s;
    bound_s = plan->predicted->bound_s;
  }
  state.counters["pass/bound"] = pass_s / bound_s;
}

BENCHMARK_CAPTURE(plan_model, two_kinds, Sizes::kTwoKinds, Forms::kRaw)
    ->Arg(57)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_model, all_different, Sizes::kAllDifferent, Forms::kRaw)
    ->Arg(57)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_model, all_different_coded, Sizes::kAllDifferent, Forms::kAll)
    ->Arg(57)
    ->Arg(1000)
    ->Unit(benchmark::kMillisecond);

}  // namespace
