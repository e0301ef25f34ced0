#include "trash_panda/plan/advice.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "search_effort.h"

namespace trash_panda::plan {
namespace {

/// Shorter than this part of the pass is worth telling.
constexpr double kWorthwhilePart = 0.95;

/// What each plan of the advice may search: a part of what a plan that is kept may.
constexpr std::uint64_t kAdvicePassesMax = kSearchPassesMax / 5;

/// Finds how much of one, two, four… more blocks' memory is enough, by halves: more memory makes
/// hardly any plan slower, and none by as much as is asked for; planning again is what costs.
///
/// @param count_max  Blocks that more memory could take at most.
/// @param plan_with  Plans with so many more bytes.
template <class PlanWith>
std::optional<MemoryAdvice> advise(const PlanRequest& request, const Plan& plan,
                                   std::size_t count_max, const PlanWith& plan_with) {
  // Where tiers are asked for, more memory would not be used as the advice says.
  if (!plan.predicted || count_max == 0 || !request.assignments.empty() ||
      request.placement == PlacementMethod::kGreedy) {
    return std::nullopt;
  }
  const double worthwhile_s = plan.predicted->pass_s * kWorthwhilePart;
  std::uint64_t block_bytes = 0;
  double compute_s = 0;
  for (const PlannedBlock& block : plan.blocks) {
    block_bytes = std::max(block_bytes, block.waiting_bytes());
    compute_s += block.compute_s;
  }
  if (compute_s > worthwhile_s) {
    return std::nullopt;  // The computation takes that long with any memory.
  }
  std::vector<std::size_t> counts;
  for (std::size_t count = 1; count < count_max; count *= 2) {
    counts.push_back(count);
  }
  counts.push_back(count_max);
  std::optional<MemoryAdvice> least;
  for (std::size_t begin = 0, end = counts.size(); begin < end;) {
    const std::size_t middle = (begin + end) / 2;
    const std::uint64_t more_bytes = counts[middle] * block_bytes;
    const Result<Plan> better = plan_with(more_bytes);
    if (better && better->predicted && better->predicted->pass_s <= worthwhile_s) {
      least = {.more_bytes = more_bytes, .pass_s = better->predicted->pass_s};
      end = middle;
    } else {
      begin = middle + 1;
    }
  }
  return least;
}

}  // namespace

std::optional<MemoryAdvice> advise_more_ram(const ModelSummary& model, const Hardware& hardware,
                                            const PlanRequest& request, const Plan& plan) {
  return advise(request, plan, plan.block_count(Tier::kDisk), [&](std::uint64_t more_bytes) {
    Hardware larger = hardware;
    PlanRequest with_more = request;
    with_more.max_ram_bytes = plan.ram_budget_bytes + more_bytes;
    larger.ram_total_bytes = std::max(hardware.ram_total_bytes, plan.ram_budget_bytes) +
                             more_bytes + request.min_free_ram_bytes.value_or(0);
    larger.cgroup_limit_bytes.reset();
    return make_plan_within(kAdvicePassesMax, model, larger, with_more);
  });
}

std::optional<MemoryAdvice> advise_more_vram(const ModelSummary& model, const Hardware& hardware,
                                             const PlanRequest& request, const Plan& plan) {
  const std::size_t streamed_count = plan.blocks.size() - plan.block_count(Tier::kGpu);
  if (!plan.uses_vram() || request.resident_blocks) {
    return std::nullopt;
  }
  return advise(request, plan, streamed_count, [&](std::uint64_t more_bytes) {
    Hardware larger = hardware;
    PlanRequest with_more = request;
    with_more.max_vram_bytes = plan.vram_budget_bytes + more_bytes;
    if (request.gpu_index < larger.gpus.size()) {
      GpuInfo& gpu = larger.gpus[request.gpu_index];
      gpu.total_bytes = std::max(gpu.total_bytes, plan.vram_budget_bytes) + more_bytes;
    }
    return make_plan_within(kAdvicePassesMax, model, larger, with_more);
  });
}

}  // namespace trash_panda::plan
