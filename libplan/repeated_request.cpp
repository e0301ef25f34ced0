#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "trash_panda/plan/planner.h"

#include "budgets.h"

namespace trash_panda::plan {
namespace {

/// What of a machine budgets come from, as the plan has it.
Hardware recorded_machine(const Plan& plan) {
  Hardware machine;
  machine.ram_total_bytes = plan.ram_total_bytes;
  if (plan.ram_limit_source == "cgroup") {
    machine.cgroup_limit_bytes = plan.ram_limit_bytes;
  }
  if (plan.vram_total_bytes > 0) {
    machine.gpus.push_back(
        {.name = plan.gpu_name, .uuid = {}, .total_bytes = plan.vram_total_bytes});
  }
  return machine;
}

void keep_edited_budgets(const Plan& plan, PlanRequest& request) {
  PlanRequest recorded = plan.request;
  recorded.gpu_index = 0;  // The machine above has one GPU at most.
  const Result<Budgets> planned = derive_budgets(recorded_machine(plan), recorded);
  if (!planned) {
    return;
  }
  if (plan.ram_budget_bytes != planned->ram.bytes) {
    request.max_ram_bytes = plan.ram_budget_bytes;
    if (request.max_pinned_bytes && *request.max_pinned_bytes < plan.ram_budget_bytes) {
      request.max_pinned_bytes.reset();
    }
  }
  if (plan.vram_budget_bytes != planned->vram.bytes) {
    request.max_vram_bytes = plan.vram_budget_bytes;
  }
}

void keep_edited_tiers(const Plan& plan, PlanRequest& request) {
  if (plan.placed.size() != plan.blocks.size()) {
    return;
  }
  for (const Tier tier : {Tier::kGpu, Tier::kRam, Tier::kDisk}) {
    std::vector<std::size_t> edited;
    for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
      if (plan.blocks[index].tier == tier && plan.placed[index] != tier) {
        edited.push_back(index);
      }
    }
    if (!edited.empty()) {
      request.assignments.emplace_back(tier, block_selector(edited));
    }
  }
}

}  // namespace

PlanRequest repeated_request(const Plan& plan) {
  PlanRequest request = plan.request;
  keep_edited_budgets(plan, request);
  keep_edited_tiers(plan, request);
  return request;
}

}  // namespace trash_panda::plan
