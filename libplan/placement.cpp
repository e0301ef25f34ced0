#include "placement.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trash_panda/base/error.h"

namespace trash_panda::plan {
namespace {

/// Numbers of slower blocks that are tried at most; beyond, one in several is. The work is this
/// times the number of blocks.
constexpr std::size_t kTrialsMax = 2048;

/// What a choice takes of the memory that it is about, and what it costs in each pass.
struct Cost {
  std::uint64_t used_bytes = 0;      ///< Memory taken.
  std::uint64_t streamed_bytes = 0;  ///< Of blocks in the slower tier.
};

/// Slots that blocks stream through.
struct Slots {
  std::uint64_t count = 0;
  std::uint64_t size_bytes = 0;  ///< Of one: the largest extent.

  [[nodiscard]] std::uint64_t total_bytes() const { return count * size_bytes; }
};

/// Slots for the blocks for which `is_slower` holds: never more than there are blocks.
Slots slots_for(std::span<const PlannedBlock> blocks, const std::vector<bool>& is_slower,
                std::uint64_t count_max) {
  Slots slots;
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    if (is_slower[index]) {
      slots.count = std::min(slots.count + 1, count_max);
      slots.size_bytes = std::max(slots.size_bytes, blocks[index].extent_bytes);
    }
  }
  return slots;
}

/// Memory taken when the blocks of `candidates` for which `is_slower` holds stream through
/// at most `slot_count` slots of the largest one, and the others stay.
Cost cost_of(std::span<const PlannedBlock> blocks, std::span<const std::size_t> candidates,
             const std::vector<bool>& is_slower, std::uint64_t slot_count,
             std::uint64_t other_bytes) {
  Cost cost;
  cost.used_bytes = other_bytes + slots_for(blocks, is_slower, slot_count).total_bytes();
  for (const std::size_t index : candidates) {
    (is_slower[index] ? cost.streamed_bytes : cost.used_bytes) += blocks[index].extent_bytes;
  }
  return cost;
}

/// Marks `count` of the `free` blocks, spread evenly, beside those of `fixed`.
std::vector<bool> mark(const std::vector<bool>& fixed, std::span<const std::size_t> free,
                       std::size_t count) {
  std::vector<bool> marked = fixed;
  for (const std::size_t position : spread_evenly(count, free.size())) {
    marked[free[position]] = true;
  }
  return marked;
}

/// One choice between a faster tier and a slower one.
struct Choice {
  std::span<const std::size_t> candidates;  ///< Blocks that it is about.
  std::vector<std::size_t> free;            ///< Those that may go either way, in order.
  std::vector<bool> fixed_slower;           ///< By block.
  std::uint64_t slot_count = 0;
  std::uint64_t other_bytes = 0;  ///< Taken whatever is chosen.
  std::uint64_t budget_bytes = 0;
};

/// The split with the fewest bytes in the slower tier that keeps within the budget; nothing when
/// there is none.
std::optional<std::vector<bool>> choose(std::span<const PlannedBlock> blocks,
                                        const Choice& choice) {
  const std::size_t stride = 1 + choice.free.size() / kTrialsMax;
  std::optional<std::vector<bool>> best;
  std::uint64_t best_bytes = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t trial = 0; trial < choice.free.size() + stride; trial += stride) {
    const std::size_t count = std::min(trial, choice.free.size());
    std::vector<bool> marked = mark(choice.fixed_slower, choice.free, count);
    const Cost cost =
        cost_of(blocks, choice.candidates, marked, choice.slot_count, choice.other_bytes);
    if (cost.used_bytes <= choice.budget_bytes && cost.streamed_bytes < best_bytes) {
      best = std::move(marked);
      best_bytes = cost.streamed_bytes;
    }
  }
  return best;
}

/// Blocks that are not in VRAM, by block.
std::vector<bool> choose_streamed(const PlacementProblem& problem) {
  const std::size_t count = problem.blocks.size();
  if (problem.vram_budget_bytes == 0) {
    return std::vector<bool>(count, true);
  }
  std::vector<std::size_t> all(count);
  Choice choice;
  choice.fixed_slower.assign(count, false);
  std::size_t fixed_resident_count = 0;
  for (std::size_t index = 0; index < count; ++index) {
    all[index] = index;
    const std::optional<Tier> tier = problem.fixed[index];
    if (!tier) {
      choice.free.push_back(index);
    }
    choice.fixed_slower[index] = tier && *tier != Tier::kGpu;
    fixed_resident_count += tier == Tier::kGpu ? 1U : 0U;
  }
  choice.candidates = all;
  if (problem.resident_count) {
    TP_ASSERT(*problem.resident_count >= fixed_resident_count &&
              *problem.resident_count - fixed_resident_count <= choice.free.size());
    const std::size_t free_resident_count = *problem.resident_count - fixed_resident_count;
    return mark(choice.fixed_slower, choice.free, choice.free.size() - free_resident_count);
  }
  choice.slot_count = kDeviceSlotCount;
  choice.other_bytes = problem.base_bytes + problem.expansion_bytes_max;
  choice.budget_bytes = problem.vram_budget_bytes;
  return choose(problem.blocks, choice)
      .value_or(mark(choice.fixed_slower, choice.free, choice.free.size()));
}

/// Blocks on disk, by block, and the lookahead that there is memory for.
std::pair<std::vector<bool>, std::uint64_t> choose_disk(const PlacementProblem& problem,
                                                        const std::vector<bool>& is_streamed) {
  Choice choice;
  std::vector<std::size_t> streamed;
  choice.fixed_slower.assign(problem.blocks.size(), false);
  for (std::size_t index = 0; index < problem.blocks.size(); ++index) {
    if (!is_streamed[index]) {
      continue;
    }
    streamed.push_back(index);
    if (!problem.fixed[index] && problem.allow_disk) {
      choice.free.push_back(index);
    }
    choice.fixed_slower[index] = problem.fixed[index] == Tier::kDisk;
  }
  choice.candidates = streamed;
  choice.budget_bytes = problem.ram_budget_bytes;
  if (problem.vram_budget_bytes == 0) {
    choice.other_bytes = problem.base_bytes + expansion_buffer_count(false, problem.blocks.size()) *
                                                  problem.expansion_bytes_max;
  }
  const std::uint64_t lookahead_max = problem.lookahead_blocks.value_or(kLookaheadBlocks);
  const std::uint64_t lookahead_min = problem.lookahead_blocks.value_or(kLookaheadBlocksMin);
  for (std::uint64_t lookahead = lookahead_max;; --lookahead) {
    choice.slot_count = 1 + lookahead;
    if (std::optional<std::vector<bool>> chosen = choose(problem.blocks, choice)) {
      return {*std::move(chosen), lookahead};
    }
    if (lookahead == lookahead_min) {
      return {mark(choice.fixed_slower, choice.free, choice.free.size()), lookahead};
    }
  }
}

}  // namespace

std::vector<std::size_t> spread_evenly(std::size_t count, std::size_t of) {
  TP_ASSERT(count <= of);
  std::vector<std::size_t> indexes(count);
  for (std::size_t i = 0; i < count; ++i) {
    indexes[i] = (2 * i + 1) * of / (2 * count);
  }
  return indexes;
}

Placement place_blocks(const PlacementProblem& problem) {
  TP_ASSERT(problem.fixed.size() == problem.blocks.size());
  const std::vector<bool> is_streamed = choose_streamed(problem);
  const auto [is_on_disk, lookahead] = choose_disk(problem, is_streamed);
  std::vector<PlannedBlock> blocks(problem.blocks.begin(), problem.blocks.end());
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    blocks[index].tier = is_on_disk[index]    ? Tier::kDisk
                         : is_streamed[index] ? Tier::kRam
                                              : Tier::kGpu;
  }
  return equip_blocks(problem, std::move(blocks), lookahead, kDeviceSlotCount);
}

Placement equip_blocks(const PlacementProblem& problem, std::vector<PlannedBlock> blocks,
                       std::uint64_t lookahead_blocks, std::uint64_t device_slot_count) {
  const bool has_vram = problem.vram_budget_bytes > 0;
  Placement placement;
  placement.lookahead_blocks = lookahead_blocks;
  placement.compute_slot_bytes = problem.expansion_bytes_max;
  std::uint64_t host_slot_bytes = 0;
  std::uint64_t device_slot_bytes = 0;
  for (const PlannedBlock& block : blocks) {
    if (block.form == StorageForm::kExponent) {
      placement.compute_slot_bytes = std::max(placement.compute_slot_bytes, block.expanded_bytes);
    }
    if (block.tier == Tier::kDisk) {
      placement.host_slot_count = std::min(placement.host_slot_count + 1, 1 + lookahead_blocks);
      host_slot_bytes = std::max(host_slot_bytes, arriving_bytes(block));
    }
    if (has_vram && block.tier != Tier::kGpu) {
      placement.device_slot_count = std::min(placement.device_slot_count + 1, device_slot_count);
      device_slot_bytes = std::max(device_slot_bytes, arriving_bytes(block));
    }
  }
  placement.slot_bytes = placement.host_slot_count * host_slot_bytes;
  placement.lookahead_bytes = lookahead_blocks * host_slot_bytes;
  placement.compute_slot_bytes *= expansion_buffer_count(has_vram, blocks.size());
  placement.compute_slot_bytes += placement.device_slot_count * device_slot_bytes;
  placement.blocks = std::move(blocks);
  return placement;
}

bool fits_budgets(const PlacementProblem& problem, const Placement& placement) {
  const bool has_vram = problem.vram_budget_bytes > 0;
  std::uint64_t device_bytes = problem.base_bytes + placement.compute_slot_bytes;
  std::uint64_t ram_bytes = placement.slot_bytes;
  for (const PlannedBlock& block : placement.blocks) {
    const bool is_on_device = has_vram && block.tier == Tier::kGpu;
    (is_on_device ? device_bytes : ram_bytes) +=
        block.tier == Tier::kDisk ? 0 : block.waiting_bytes();
  }
  return has_vram
             ? device_bytes <= problem.vram_budget_bytes && ram_bytes <= problem.ram_budget_bytes
             : device_bytes + ram_bytes <= problem.ram_budget_bytes;
}

}  // namespace trash_panda::plan
