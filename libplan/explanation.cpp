#include "trash_panda/plan/explanation.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trash_panda/plan/planner.h"
#include "trash_panda/plan/prediction.h"

#include "placement.h"

namespace trash_panda::plan {
namespace {

/// Shorter by less than this part of the pass is not shorter: sums of doubles differ.
constexpr double kEqualPart = 1e-9;

/// One of the buffers for expanded blocks: what is left of the slots of the compute device without
/// those that copies arrive in.
std::uint64_t expansion_bytes(const Plan& plan) {
  std::uint64_t device_slot_bytes = 0;
  for (const PlannedBlock& block : plan.blocks) {
    if (plan.uses_vram() && block.tier != Tier::kGpu) {
      device_slot_bytes = std::max(device_slot_bytes, arriving_bytes(block));
    }
  }
  // Blocks add up to less than 2^60 bytes, and there are no more slots than blocks.
  const std::uint64_t slots_bytes =
      std::min<std::uint64_t>(plan.device_slot_count, plan.blocks.size()) * device_slot_bytes;
  return (plan.compute_slot_bytes - std::min(slots_bytes, plan.compute_slot_bytes)) /
         expansion_buffer_count(plan.uses_vram(), plan.blocks.size());
}

/// Blocks that the plan reads ahead, or would with a block on disk.
std::uint64_t lookahead_of(const Plan& plan) {
  return plan.host_slot_count > 1
             ? std::max(plan.host_slot_count - 1, plan.request.lookahead_blocks.value_or(0))
             : plan.request.lookahead_blocks.value_or(kLookaheadBlocks);
}

/// The steady pass, where every rate that it needs is known and something takes time.
std::optional<double> known_pass_s(const Plan& plan) {
  if (!missing_rates(plan).empty()) {
    return std::nullopt;
  }
  const double pass_s = simulate_pass_s(pass_model(plan));
  return pass_s > 0 ? std::optional(pass_s) : std::nullopt;
}

/// The plan with one block in another tier.
///
/// @param scratch  A copy of `plan`, whose blocks are those of `plan` again afterwards: copying all
///                 names for each move would take longer than simulating it.
TierMove move_block(const Plan& plan, std::size_t index, Tier tier, Plan& scratch) {
  PlacementProblem problem;
  problem.vram_budget_bytes = plan.vram_budget_bytes;
  problem.expansion_bytes_max = expansion_bytes(plan);
  PlannedBlock& block = scratch.blocks[index];
  block.tier = tier;
  if (block.form == StorageForm::kZstd && tier != Tier::kDisk) {
    block.form = StorageForm::kRaw;  // Decoded where it waits in memory.
    block.coded_bytes = 0;
  }
  Placement equipped =
      equip_blocks(problem, std::move(scratch.blocks), lookahead_of(plan),
                   plan.device_slot_count > 0 ? plan.device_slot_count : kDeviceSlotCount);
  scratch.slot_bytes = equipped.slot_bytes;
  scratch.compute_slot_bytes = equipped.compute_slot_bytes;
  scratch.host_slot_count = equipped.host_slot_count;
  scratch.device_slot_count = equipped.device_slot_count;
  scratch.blocks = std::move(equipped.blocks);
  const TierMove move{.tier = tier,
                      .pass_s = known_pass_s(scratch),
                      .ram_used_bytes = scratch.ram_used_bytes(),
                      .vram_used_bytes = scratch.vram_used_bytes(),
                      .fits = scratch.fits()};
  scratch.blocks[index] = plan.blocks[index];
  return move;
}

/// Tiers of this plan, the fastest first. Without VRAM, "gpu" is another word for RAM.
std::vector<Tier> tiers_of_plan(const Plan& plan) {
  return plan.uses_vram() ? std::vector{Tier::kGpu, Tier::kRam, Tier::kDisk}
                          : std::vector{Tier::kRam, Tier::kDisk};
}

/// Blocks whose tier someone asked for.
std::vector<bool> assigned_blocks(const Plan& plan) {
  std::vector<bool> is_assigned(plan.blocks.size(), false);
  for (const auto& [tier, selector] : plan.request.assignments) {
    // A plan whose blocks were changed by hand may have selectors that match nothing now.
    if (const auto selected = select_blocks(selector, plan.blocks)) {
      for (const std::size_t index : *selected) {
        is_assigned[index] = plan.blocks[index].tier == tier;
      }
    }
  }
  return is_assigned;
}

TierReason reason_of(const BlockExplanation& block, Tier tier, std::optional<double> pass_s) {
  // Moves go from the fastest tier to the slowest: the last one before the block's own is next.
  const TierMove* next_faster = nullptr;
  for (const TierMove& move : block.moves) {
    if (move.tier < tier) {
      next_faster = &move;
    }
  }
  if (next_faster == nullptr) {
    return TierReason::kFastest;
  }
  if (!next_faster->fits) {
    return TierReason::kNoRoom;
  }
  if (!pass_s || !next_faster->pass_s) {
    return TierReason::kNotMeasured;
  }
  return *next_faster->pass_s < *pass_s * (1 - kEqualPart) ? TierReason::kWouldBeFaster
                                                           : TierReason::kNotFaster;
}

}  // namespace

std::string_view tier_reason_name(TierReason reason) {
  constexpr std::array<std::string_view, 7> kNames = {
      "assigned", "edited", "fastest", "no_room", "not_faster", "would_be_faster", "not_measured"};
  return kNames.at(static_cast<std::size_t>(reason));
}

std::vector<BlockExplanation> explain_blocks(const Plan& plan,
                                             std::span<const std::size_t> indexes) {
  const std::optional<double> pass_s = known_pass_s(plan);
  const Simulation simulation = simulate(pass_model(plan));
  const std::vector<bool> is_assigned = assigned_blocks(plan);
  Plan scratch = plan;
  std::vector<BlockExplanation> explained;
  for (const std::size_t index : indexes) {
    const PlannedBlock& block = plan.blocks[index];
    BlockExplanation explanation{.index = index,
                                 .reason = TierReason::kFastest,
                                 .cost = block_cost(block, plan.rates, plan.uses_vram()),
                                 .moves = {}};
    if (pass_s) {
      explanation.stall_s = simulation.blocks[index].stall_s;
      explanation.stalled_by = simulation.blocks[index].stalled_by;
    }
    for (const Tier tier : tiers_of_plan(plan)) {
      if (tier != block.tier) {
        explanation.moves.push_back(move_block(plan, index, tier, scratch));
      }
    }
    const bool is_edited =
        plan.placed.size() == plan.blocks.size() && plan.placed[index] != block.tier;
    explanation.reason = is_edited            ? TierReason::kEdited
                         : is_assigned[index] ? TierReason::kAssigned
                                              : reason_of(explanation, block.tier, pass_s);
    explained.push_back(std::move(explanation));
  }
  return explained;
}

}  // namespace trash_panda::plan
