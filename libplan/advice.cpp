#include "trash_panda/plan/advice.h"

#include <algorithm>

namespace trash_panda::plan {
namespace {

/// Shorter than this part of the pass is worth telling.
constexpr double kWorthwhilePart = 0.95;

}  // namespace

std::optional<MemoryAdvice> advise_more_ram(const ModelSummary& model, const Hardware& hardware,
                                            const PlanRequest& request, const Plan& plan) {
  const std::size_t disk_count = plan.block_count(Tier::kDisk);
  // Where tiers are asked for, more memory would not be used as the advice says.
  if (!plan.predicted || disk_count == 0 || !request.assignments.empty() ||
      request.placement == PlacementMethod::kGreedy) {
    return std::nullopt;
  }
  std::uint64_t block_bytes = 0;
  for (const PlannedBlock& block : plan.blocks) {
    block_bytes = std::max(block_bytes, block.waiting_bytes());
  }
  Hardware larger = hardware;
  PlanRequest with_more = request;
  for (std::size_t count = 1;; count = std::min(2 * count, disk_count)) {
    const std::uint64_t more_bytes = count * block_bytes;
    with_more.max_ram_bytes = plan.ram_budget_bytes + more_bytes;
    larger.ram_total_bytes = std::max(hardware.ram_total_bytes, plan.ram_budget_bytes) +
                             more_bytes + request.min_free_ram_bytes.value_or(0);
    larger.cgroup_limit_bytes.reset();
    const Result<Plan> better = make_plan(model, larger, with_more);
    if (better && better->predicted &&
        better->predicted->pass_s <= plan.predicted->pass_s * kWorthwhilePart) {
      return MemoryAdvice{.more_ram_bytes = more_bytes, .pass_s = better->predicted->pass_s};
    }
    if (count == disk_count) {
      return std::nullopt;
    }
  }
}

}  // namespace trash_panda::plan
