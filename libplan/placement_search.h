#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/simulator.h"

#include "search_effort.h"

namespace trash_panda::plan {

/// Tiers of blocks, and the order of SearchBlock::choices.
inline constexpr std::array kBlockTiers = {Tier::kGpu, Tier::kRam, Tier::kDisk};

/// Index of a block's tier into an array by kBlockTiers.
[[nodiscard]] constexpr std::size_t tier_index(Tier tier) {
  return tier == Tier::kGpu ? 0 : tier == Tier::kRam ? 1 : 2;
}

/// What one block takes in one tier.
struct TierChoice {
  bool is_allowed = false;
  BlockCost cost;
  std::uint64_t memory_bytes = 0;       ///< Of the tier's own memory: VRAM or RAM; disk: none.
  std::uint64_t host_slot_bytes = 0;    ///< Of a slot that it is read into; 0: needs none.
  std::uint64_t device_slot_bytes = 0;  ///< Of a slot that it is copied to; 0: needs none.
};

struct SearchBlock {
  std::array<TierChoice, kBlockTiers.size()> choices;
};

/// Blocks with what each would cost in each tier, and the memory that there is for them.
struct SearchProblem {
  std::vector<SearchBlock> blocks;
  bool has_link = false;
  std::uint64_t vram_bytes = 0;  ///< For resident blocks and device slots.
  std::uint64_t ram_bytes = 0;   ///< For blocks in RAM and host slots.
  std::optional<std::uint64_t> resident_count;
  /// Numbers of slots that may be had, falling; there are never more than blocks that use them.
  std::vector<std::size_t> host_slot_counts = {8, 6, 4, 3, 2};
  std::vector<std::size_t> device_slot_counts = {3, 2};
};

/// A placement that keeps within the memory.
struct SearchResult {
  std::vector<Tier> tiers;
  std::size_t host_slot_count = 0;
  std::size_t device_slot_count = 0;
  double pass_s = 0;
};

/// Placements up to this number are all considered: ten blocks of three tiers.
inline constexpr std::uint64_t kExactPlacementsMax = 60'000;

enum class SearchMethod {
  kAutomatic,  ///< Exact for few blocks.
  kSpread,     ///< Only placements that spread tiers evenly, for tests of how good those are.
};

/// Finds the placement whose simulated pass is shortest; nothing when none keeps within the memory.
///
/// Up to ten blocks all placements are tried, so that more memory or a faster channel never gives a
/// slower pass. With more, what spreads blocks evenly or fills the memory is improved until no move
/// of a block, and no exchange of two, shortens the pass by more than 1 %: more memory or a faster
/// channel then hardly ever gives a slower pass, and by a few per cent at most. Deterministic.
///
/// @param others      Placements that are considered besides.
/// @param passes_max  Passes that the simulations may play, about, where not all placements are
///                    tried; in passes of 57 blocks where there are fewer.
[[nodiscard]] std::optional<SearchResult> search_placement(
    const SearchProblem& problem, SearchMethod method = SearchMethod::kAutomatic,
    std::span<const std::vector<Tier>> others = {}, std::uint64_t passes_max = kSearchPassesMax);

}  // namespace trash_panda::plan
