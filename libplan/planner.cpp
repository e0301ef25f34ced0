#include "trash_panda/plan/planner.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/base/units.h"
#include "trash_panda/plan/prediction.h"

#include "block_costs.h"
#include "budgets.h"
#include "cost_placement.h"
#include "demotion.h"
#include "greedy_placement.h"
#include "placement.h"
#include "search_effort.h"

namespace trash_panda::plan {
namespace {

/// More blocks than a pass has are never read ahead, and the product with a size stays in range.
constexpr std::uint64_t kLookaheadBlocksMax = 1024;

Result<void> check_request(const ModelSummary& model, const Budgets& budgets,
                           const PlanRequest& request) {
  TP_RETURN_IF_ERROR(parse_compute_dtype(request.compute_dtype));
  if (request.lookahead_blocks && (*request.lookahead_blocks < kLookaheadBlocksMin ||
                                   *request.lookahead_blocks > kLookaheadBlocksMax)) {
    return std::unexpected(
        Error(ErrorCode::kUsage,
              fmt::format("--lookahead {}: {} to {} blocks are read ahead",
                          *request.lookahead_blocks, kLookaheadBlocksMin, kLookaheadBlocksMax)));
  }
  const std::uint64_t resident_count = request.resident_blocks.value_or(0);
  if (resident_count > model.blocks.size()) {
    return std::unexpected(
        Error(ErrorCode::kUsage, fmt::format("--resident-blocks {}: the model has {} blocks",
                                             resident_count, model.blocks.size())));
  }
  if (resident_count > 0 && budgets.vram.bytes == 0) {
    return std::unexpected(
        Error(ErrorCode::kDoesNotFit,
              fmt::format("--resident-blocks {}: there is no VRAM to plan for", resident_count))
            .with_hint("--max-vram plans for a GPU that is not in this machine"));
  }
  return {};
}

/// Tiers that the user fixed, by block.
Result<std::vector<std::optional<Tier>>> fix_tiers(const ModelSummary& model,
                                                   const Budgets& budgets,
                                                   const PlanRequest& request) {
  std::vector<std::optional<Tier>> fixed(model.blocks.size());
  for (const auto& [tier, selector] : request.assignments) {
    const std::string typed =
        fmt::format("--assign {}={}", format::tier_name(tier), printable(selector));
    if (tier == Tier::kBase) {
      return std::unexpected(Error(ErrorCode::kUsage, typed + ": blocks can't become base tensors")
                                 .with_hint("the tiers of blocks are gpu, ram and disk"));
    }
    if (tier == Tier::kDisk && !request.allow_disk) {
      return std::unexpected(Error(ErrorCode::kUsage, typed + " contradicts --no-disk"));
    }
    if (tier == Tier::kGpu && budgets.vram.bytes == 0) {
      return std::unexpected(
          Error(ErrorCode::kDoesNotFit, typed + ": there is no VRAM to plan for")
              .with_hint("--max-vram plans for a GPU that is not in this machine"));
    }
    auto selected = select_blocks(selector, model.blocks);
    if (!selected) {
      return std::unexpected(std::move(selected).error().with_context(
          fmt::format("--assign {}", format::tier_name(tier))));
    }
    for (const std::size_t index : *selected) {
      fixed[index] = tier;
    }
  }
  if (request.resident_blocks) {
    const auto fixed_to_gpu =
        static_cast<std::uint64_t>(std::ranges::count(fixed, std::optional(Tier::kGpu)));
    const auto open = static_cast<std::uint64_t>(std::ranges::count(fixed, std::optional<Tier>()));
    if (*request.resident_blocks < fixed_to_gpu || *request.resident_blocks > fixed_to_gpu + open) {
      return std::unexpected(
          Error(ErrorCode::kUsage,
                fmt::format("--resident-blocks {}: --assign allows {} to {}",
                            *request.resident_blocks, fixed_to_gpu, fixed_to_gpu + open)));
    }
  }
  return fixed;
}

bool is_assigned(const PlanRequest& request, Tier tier) {
  return std::ranges::any_of(request.assignments,
                             [tier](const auto& assignment) { return assignment.first == tier; });
}

/// ": base 1.00 GB, 4 resident blocks 2.10 GB", leaving out what is nothing.
std::string list_parts(const std::vector<std::pair<std::string, std::uint64_t>>& parts) {
  std::string text;
  for (const auto& [name, bytes] : parts) {
    if (bytes > 0) {
      text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", name, format_bytes(bytes));
    }
  }
  return text;
}

std::string vram_shortage(const Plan& plan) {
  return fmt::format("needs {} of VRAM and the budget is {}{}",
                     format_bytes(plan.vram_used_bytes()), format_bytes(plan.vram_budget_bytes),
                     list_parts({{"base", plan.base_bytes},
                                 {"KV cache", plan.kv_cache_bytes},
                                 {fmt::format("{} resident blocks", plan.block_count(Tier::kGpu)),
                                  plan.extent_bytes(Tier::kGpu)},
                                 {"compute slots", plan.compute_slot_bytes}}));
}

std::string ram_shortage(const Plan& plan) {
  return fmt::format(
      "needs {} of RAM and the budget is {} (of {}, {}){}", format_bytes(plan.ram_used_bytes()),
      format_bytes(plan.ram_budget_bytes), format_bytes(plan.ram_limit_bytes),
      plan.ram_limit_source,
      list_parts({{"base", plan.uses_vram() ? 0 : plan.base_bytes},
                  {"KV cache", plan.uses_vram() ? 0 : plan.kv_cache_bytes},
                  {"compute slots", plan.uses_vram() ? 0 : plan.compute_slot_bytes},
                  {fmt::format("{} blocks in RAM", plan.block_count(Tier::kRam)),
                   plan.extent_bytes(Tier::kRam)},
                  {fmt::format("slots for {} disk blocks", plan.block_count(Tier::kDisk)),
                   plan.slot_bytes}}));
}

/// What the user asked for and can't have is an error; a machine that is too small, a warning.
Result<void> check_fit(const PlanRequest& request, const Budgets& budgets, Plan& plan) {
  if (plan.vram_used_bytes() > plan.vram_budget_bytes) {
    const bool is_assigned_to_gpu = is_assigned(request, Tier::kGpu);
    if (budgets.vram.is_given || request.resident_blocks || is_assigned_to_gpu) {
      std::string hint(budgets.vram.flag);
      hint += request.resident_blocks ? " or fewer --resident-blocks" : "";
      hint += is_assigned_to_gpu ? " or fewer blocks in --assign gpu=" : "";
      return std::unexpected(Error(ErrorCode::kDoesNotFit, "the plan " + vram_shortage(plan))
                                 .with_hint(hint + " helps")
                                 .with_shortage({.needed_bytes = plan.vram_used_bytes(),
                                                 .budget_bytes = plan.vram_budget_bytes}));
    }
    plan.warnings.push_back("does not fit: " + vram_shortage(plan));
  }
  if (plan.ram_used_bytes() > plan.ram_budget_bytes) {
    const bool is_assigned_to_ram = is_assigned(request, Tier::kRam);
    if (budgets.ram.is_given || !request.allow_disk || is_assigned_to_ram ||
        request.lookahead_blocks) {
      std::string hint(budgets.ram.flag);
      hint += !request.allow_disk ? " or leaving out --no-disk" : "";
      hint += is_assigned_to_ram ? " or fewer blocks in --assign ram=" : "";
      hint += request.lookahead_blocks ? " or a smaller --lookahead" : "";
      return std::unexpected(Error(ErrorCode::kDoesNotFit, "the plan " + ram_shortage(plan))
                                 .with_hint(hint + " helps")
                                 .with_shortage({.needed_bytes = plan.ram_used_bytes(),
                                                 .budget_bytes = plan.ram_budget_bytes}));
    }
    plan.warnings.push_back("does not fit: " + ram_shortage(plan));
  }
  return {};
}

/// Why a plan comes without a prediction, or was placed without one.
void warn_of_missing_rates(const Hardware& hardware, Plan& plan) {
  std::string names;
  for (const Channel channel : missing_rates(plan)) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", channel_name(channel));
  }
  if (!names.empty() && !hardware.measured_at.empty()) {
    plan.warnings.push_back(
        fmt::format("{} not measured: blocks are spread evenly and no time is predicted", names));
  }
}

/// What a user should know; of a plan that does not fit, only what that does not make moot.
void warn(const Hardware& hardware, const PlanRequest& request, const Placement& placement,
          Plan& plan) {
  if (plan.blocks.empty()) {
    plan.warnings.emplace_back(
        "no blocks found: nothing can stream; --group names the list of layers");
  }
  if (!plan.fits()) {
    return;
  }
  if (request.placement == PlacementMethod::kCost) {
    warn_of_missing_rates(hardware, plan);
  }
  const std::uint64_t base_budget_bytes =
      plan.uses_vram() ? plan.vram_budget_bytes : plan.ram_budget_bytes;
  if (!plan.blocks.empty() && plan.base_bytes > base_budget_bytes / 2) {
    plan.warnings.push_back(
        fmt::format("tensors outside blocks take {}, more than half of the {} budget of {}",
                    format_bytes(plan.base_bytes), plan.uses_vram() ? "VRAM" : "RAM",
                    format_bytes(base_budget_bytes)));
  }
  if (!request.lookahead_blocks && plan.block_count(Tier::kDisk) > 0 &&
      placement.lookahead_blocks < kLookaheadBlocks) {
    plan.warnings.push_back(fmt::format("RAM for {} of {} blocks of lookahead: reads overlap less",
                                        placement.lookahead_blocks, kLookaheadBlocks));
  }
  if (hardware.ram_available_bytes > 0 && plan.ram_used_bytes() > hardware.ram_available_bytes) {
    plan.warnings.push_back(fmt::format("the plan takes {} of RAM and {} are available now",
                                        format_bytes(plan.ram_used_bytes()),
                                        format_bytes(hardware.ram_available_bytes)));
  }
  if (request.gpu_index < hardware.gpus.size()) {
    const GpuInfo& gpu = hardware.gpus[request.gpu_index];
    if (plan.vram_used_bytes() > gpu.free_bytes) {
      plan.warnings.push_back(fmt::format("the plan takes {} of VRAM and {} are free now on {}",
                                          format_bytes(plan.vram_used_bytes()),
                                          format_bytes(gpu.free_bytes), gpu.name));
    }
  }
}

/// The machine with nothing else running: what is free at the moment must not change a plan.
Hardware idle_machine(Hardware hardware) {
  hardware.ram_available_bytes = hardware.ram_total_bytes;
  hardware.cgroup_used_bytes = 0;
  for (GpuInfo& gpu : hardware.gpus) {
    gpu.free_bytes = gpu.total_bytes;
  }
  return hardware;
}

/// The placement that the request's method gives.
Placement choose_placement(const PlacementProblem& problem, const ModelSummary& model,
                           const Hardware& hardware, const PlanRequest& request) {
  Placement even = place_blocks(problem);
  std::vector<PlannedBlock> blocks(problem.blocks.begin(), problem.blocks.end());
  const bool is_greedy = request.placement == PlacementMethod::kGreedy;
  const std::vector<Tier> greedy_tiers =
      place_greedily(model, is_greedy ? hardware : idle_machine(hardware), request);
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    blocks[index].tier = problem.fixed[index].value_or(greedy_tiers[index]);
  }
  Placement greedy =
      equip_blocks(problem, std::move(blocks), request.lookahead_blocks.value_or(kLookaheadBlocks),
                   kDeviceSlotCount);
  even.rates = greedy.rates = problem.rates;
  if (is_greedy) {
    return greedy;
  }
  return place_by_cost(problem, {even, greedy}).value_or(std::move(even));
}

}  // namespace

Result<Plan> make_plan(const ModelSummary& model, const Hardware& hardware,
                       const PlanRequest& request) {
  return make_plan_within(kSearchPassesMax, model, hardware, request);
}

Result<Plan> make_plan_within(std::uint64_t search_passes_max, const ModelSummary& model,
                              const Hardware& hardware, const PlanRequest& request) {
  TP_ASSIGN_OR_RETURN(Budgets budgets, derive_budgets(hardware, request));
  TP_RETURN_IF_ERROR(check_request(model, budgets, request));
  TP_ASSIGN_OR_RETURN(const CostedBlocks costed, cost_blocks(model, hardware, request, budgets));

  PlacementProblem problem;
  problem.blocks = costed.blocks;
  problem.contents = model.contents;
  TP_ASSIGN_OR_RETURN(problem.fixed, fix_tiers(model, budgets, request));
  problem.resident_count = request.resident_blocks;
  problem.base_bytes = model.base_expanded_bytes + request.kv_cache_bytes;
  problem.expansion_bytes_max = model.expansion_bytes_max;
  problem.ram_budget_bytes = budgets.ram.bytes;
  problem.vram_budget_bytes = budgets.vram.bytes;
  problem.allow_disk = request.allow_disk;
  problem.lookahead_blocks = request.lookahead_blocks;
  problem.rates = costed.rates;
  problem.exponent_bytes_per_s = costed.exponent_bytes_per_s;
  problem.forms = request.forms;
  problem.search_passes_max = search_passes_max;
  if (budgets.vram.bytes == 0) {
    problem.resident_count.reset();
  }
  const Placement placement = choose_placement(problem, model, hardware, request);

  Plan plan;
  plan.model_path = model.path;
  plan.model_fingerprint = model.fingerprint;
  plan.model_bytes = model.total_bytes;
  plan.tensor_count = model.tensor_count;
  plan.ram_total_bytes = hardware.ram_total_bytes;
  plan.ram_limit_bytes = budgets.ram_limit_bytes;
  plan.ram_limit_source = budgets.ram_limit_source;
  plan.gpu_name = budgets.gpu_name;
  plan.vram_total_bytes = budgets.vram_total_bytes;
  plan.measured_at = hardware.measured_at;
  plan.rates = placement.rates;
  plan.compute_source = costed.compute_source;
  plan.ram_budget_bytes = budgets.ram.bytes;
  plan.vram_budget_bytes = budgets.vram.bytes;
  plan.base_bytes = model.base_expanded_bytes;
  plan.slot_bytes = placement.slot_bytes;
  plan.compute_slot_bytes = placement.compute_slot_bytes;
  plan.kv_cache_bytes = request.kv_cache_bytes;
  plan.compute_dtype = request.compute_dtype;
  plan.lookahead_bytes = placement.lookahead_bytes;
  plan.host_slot_count = placement.host_slot_count;
  plan.device_slot_count = placement.device_slot_count;
  plan.blocks = placement.blocks;
  for (const PlannedBlock& block : plan.blocks) {
    plan.placed.push_back(block.tier);
  }
  plan.request = request;
  plan.request.forms.clear();
  plan.demote_gpu = demotion_order(plan, Tier::kGpu);
  plan.demote_ram = demotion_order(plan, Tier::kRam);
  plan.predicted = predict(plan);
  plan.warnings = std::move(budgets.warnings);
  TP_RETURN_IF_ERROR(check_fit(request, budgets, plan));
  warn(hardware, request, placement, plan);
  return plan;
}

}  // namespace trash_panda::plan
