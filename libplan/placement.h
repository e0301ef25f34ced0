#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/planner.h"

namespace trash_panda::plan {

/// Slots in VRAM that streamed blocks arrive in: one is computed with while the next one is copied.
inline constexpr std::uint64_t kDeviceSlotCount = 2;

/// Blocks read ahead of the one in use, unless the user says otherwise: one hides the read, the
/// second evens out blocks of different size.
inline constexpr std::uint64_t kLookaheadBlocks = 2;
/// Fewest blocks read ahead: without one, every read would be waited for.
inline constexpr std::uint64_t kLookaheadBlocksMin = 1;

/// A model and what it is placed under.
struct PlacementProblem {
  std::span<const PlannedBlock> blocks;
  std::span<const BlockContent> contents;       ///< One per block, or none: nothing to code.
  std::vector<std::optional<Tier>> fixed;       ///< By the user, one per block.
  std::optional<std::uint64_t> resident_count;  ///< Exactly so many in VRAM.
  std::uint64_t base_bytes = 0;
  std::uint64_t expansion_bytes_max = 0;
  std::uint64_t ram_budget_bytes = 0;
  std::uint64_t vram_budget_bytes = 0;  ///< 0: base lies in RAM, nothing in VRAM.
  bool allow_disk = true;
  std::optional<std::uint64_t> lookahead_blocks;
  /// What is known of time; with it, place_by_cost() does better than place_blocks().
  Rates rates;
  std::optional<std::uint64_t> exponent_bytes_per_s;  ///< Expansion of coded blocks.
  std::vector<StorageForm> forms;                     ///< That packs can hold, beside raw.
  std::uint64_t search_passes_max = 0;                ///< @see kSearchPassesMax
};

/// Where each block goes and what that takes besides.
struct Placement {
  std::uint64_t slot_bytes = 0;
  std::uint64_t compute_slot_bytes = 0;
  std::uint64_t lookahead_blocks = 0;  ///< What is left of the lookahead where memory is short.
  std::uint64_t lookahead_bytes = 0;
  std::uint64_t host_slot_count = 0;
  std::uint64_t device_slot_count = 0;
  std::vector<PlannedBlock> blocks;  ///< With tiers and forms.
  Rates rates;                       ///< Of place_by_cost().
};

/// Bytes of a block in a slot: raw where the CPU decodes it, else as it waits.
[[nodiscard]] inline std::uint64_t arriving_bytes(const PlannedBlock& block) {
  return block.form == StorageForm::kZstd ? block.extent_bytes : block.waiting_bytes();
}

/// Buffers for expanded blocks. The CPU expands one block while it computes with another; a GPU
/// expands where a block is used.
[[nodiscard]] constexpr std::uint64_t expansion_buffer_count(bool has_vram,
                                                             std::size_t block_count) {
  return has_vram || block_count < 2 ? 1 : 2;
}

/// Indexes of `count` members spread evenly over `of`, each in the middle of its share.
[[nodiscard]] std::vector<std::size_t> spread_evenly(std::size_t count, std::size_t of);

/// Places the blocks that are not fixed: as many bytes as fit into VRAM, then into RAM, the rest
/// on disk, those of the slower tier spread evenly among those of the faster one, so that their
/// copies and reads do not bunch up.
///
/// Where nothing fits, the placement that needs least comes back: Plan::fits() tells.
///
/// `fixed` and `resident_count` do not contradict each other.
[[nodiscard]] Placement place_blocks(const PlacementProblem& problem);

/// Slots and lookahead for blocks whose tiers are decided.
///
/// @param lookahead_blocks  Read ahead at most; fewer are where there are fewer disk blocks.
[[nodiscard]] Placement equip_blocks(const PlacementProblem& problem,
                                     std::vector<PlannedBlock> blocks,
                                     std::uint64_t lookahead_blocks,
                                     std::uint64_t device_slot_count);

/// Memory that a placement takes, base included, for comparison with the problem's budgets.
[[nodiscard]] bool fits_budgets(const PlacementProblem& problem, const Placement& placement);

}  // namespace trash_panda::plan
