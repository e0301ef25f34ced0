#include "filled_placements.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "trash_panda/plan/spread_order.h"

#include "left_of.h"

namespace trash_panda::plan {
namespace {

std::uint64_t bytes_in(const SearchProblem& problem, std::size_t index, Tier tier) {
  return problem.blocks[index].choices[tier_index(tier)].memory_bytes;
}

/// Puts blocks that are on disk into `tier` as long as there is room beside the slots, in order.
void fill_tier(const SearchProblem& problem, std::span<const std::size_t> order, Tier tier,
               std::uint64_t memory_bytes, TierIndexes& tiers) {
  const auto target = static_cast<std::uint8_t>(tier_index(tier));
  for (std::size_t index = 0; index < tiers.size(); ++index) {
    if (tiers[index] == target) {
      memory_bytes -= std::min(memory_bytes, bytes_in(problem, index, tier));
    }
  }
  for (const std::size_t index : order) {
    const auto& choices = problem.blocks[index].choices;
    if (choices[tiers[index]].memory_bytes > 0 || !choices[target].is_allowed) {
      continue;
    }
    if (choices[target].memory_bytes <= memory_bytes) {
      memory_bytes -= choices[target].memory_bytes;
      tiers[index] = target;
    }
  }
}

}  // namespace

std::vector<TierIndexes> filled_placements(const SearchProblem& problem) {
  std::vector<TierIndexes> placements;
  const std::size_t count = problem.blocks.size();
  std::uint64_t host_slot_bytes = 0;
  std::uint64_t device_slot_bytes = 0;
  TierIndexes slowest(count);
  for (std::size_t index = 0; index < count; ++index) {
    const auto& choices = problem.blocks[index].choices;
    for (std::size_t tier = 0; tier < choices.size(); ++tier) {
      if (choices[tier].is_allowed) {
        slowest[index] = static_cast<std::uint8_t>(tier);
        host_slot_bytes = std::max(host_slot_bytes, choices[tier].host_slot_bytes);
        device_slot_bytes = std::max(device_slot_bytes, choices[tier].device_slot_bytes);
      }
    }
  }
  const std::vector<std::size_t> spread = spread_order(count);
  std::vector<std::size_t> falling(spread);
  std::ranges::stable_sort(falling, std::ranges::greater(), [&problem](std::size_t index) {
    return bytes_in(problem, index, Tier::kRam);
  });
  const std::vector<std::size_t> rising(falling.rbegin(), falling.rend());
  for (const std::span<const std::size_t> order :
       {std::span<const std::size_t>(spread), std::span<const std::size_t>(falling),
        std::span<const std::size_t>(rising)}) {
    // Blocks that fit only without slots for others are left to the search that follows.
    for (const std::uint64_t slot_part : {1U, 0U}) {
      TierIndexes tiers = slowest;
      fill_tier(problem, order, Tier::kGpu,
                left_of(problem.vram_bytes,
                        slot_part * problem.device_slot_counts.back() * device_slot_bytes),
                tiers);
      fill_tier(
          problem, order, Tier::kRam,
          left_of(problem.ram_bytes, slot_part * problem.host_slot_counts.back() * host_slot_bytes),
          tiers);
      placements.push_back(std::move(tiers));
    }
  }
  return placements;
}

}  // namespace trash_panda::plan
