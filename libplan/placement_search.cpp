#include "placement_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "filled_placements.h"
#include "placement_judge.h"
#include "spread_placements.h"

namespace trash_panda::plan {
namespace {

/// Sizes of blocks that spread placements count apart.
constexpr std::size_t kSizesMax = 3;

/// Blocks whose passes the limit of a search is in: fewer blocks may play more, shorter passes.
constexpr std::uint64_t kPassBlocks = 57;

/// What models of few sizes may play of the limit.
constexpr std::uint64_t kFewSizesFactor = 2;

std::uint64_t placement_count(const SearchProblem& problem) {
  std::uint64_t count = 1;
  for (const SearchBlock& block : problem.blocks) {
    const auto allowed =
        static_cast<std::uint64_t>(std::ranges::count_if(block.choices, &TierChoice::is_allowed));
    if (count > kExactPlacementsMax) {
      return count;
    }
    count *= allowed;
  }
  return count;
}

/// Considers every placement, leaving out branches that can't fit or can't be better.
class ExactSearch {
 public:
  ExactSearch(const SearchProblem& problem, PlacementJudge& judge)
      : problem_(problem), judge_(judge), tiers_(problem.blocks.size()) {
    // What the blocks from each one on take at least, on each channel.
    rest_.resize(problem.blocks.size() + 1);
    for (std::size_t index = problem.blocks.size(); index-- > 0;) {
      ChannelTimes least;
      least.busy_s.fill(std::numeric_limits<double>::infinity());
      for (const TierChoice& choice : problem.blocks[index].choices) {
        if (choice.is_allowed) {
          const ChannelTimes times = channel_times(std::span(&choice.cost, 1));
          for (std::size_t at = 0; at < kChannels.size(); ++at) {
            least.busy_s[at] = std::min(least.busy_s[at], times.busy_s[at]);
          }
        }
      }
      for (std::size_t at = 0; at < kChannels.size(); ++at) {
        rest_[index].busy_s[at] = rest_[index + 1].busy_s[at] + least.busy_s[at];
      }
    }
  }

  void run() { visit(0, {}, 0, 0); }

 private:
  void visit(std::size_t index, const ChannelTimes& so_far, std::uint64_t vram_bytes,
             std::uint64_t ram_bytes) {
    ChannelTimes least = so_far;
    for (std::size_t at = 0; at < kChannels.size(); ++at) {
      least.busy_s[at] += rest_[index].busy_s[at];
    }
    if (vram_bytes > problem_.vram_bytes || ram_bytes > problem_.ram_bytes ||
        !judge_.can_improve(least)) {
      return;
    }
    if (index == tiers_.size()) {
      judge_.consider(tiers_);
      return;
    }
    for (std::size_t tier = 0; tier < kBlockTiers.size(); ++tier) {
      const TierChoice& choice = problem_.blocks[index].choices[tier];
      if (!choice.is_allowed) {
        continue;
      }
      tiers_[index] = static_cast<std::uint8_t>(tier);
      ChannelTimes times = so_far;
      times.busy_s[0] += choice.cost.read_s;
      times.busy_s[1] += choice.cost.decode_s;
      times.busy_s[2] += choice.cost.copy_s;
      times.busy_s[3] += choice.cost.compute_s;
      const bool is_gpu = tier == tier_index(Tier::kGpu);
      visit(index + 1, times, vram_bytes + (is_gpu ? choice.memory_bytes : 0),
            ram_bytes + (is_gpu ? 0 : choice.memory_bytes));
    }
  }

  const SearchProblem& problem_;
  PlacementJudge& judge_;
  TierIndexes tiers_;
  std::vector<ChannelTimes> rest_;
};

/// Whether the numbers of blocks by size, which spread placements go through, say everything.
bool has_few_sizes(const SearchProblem& problem) {
  std::vector<std::uint64_t> sizes;
  for (const SearchBlock& block : problem.blocks) {
    sizes.push_back(block.choices[tier_index(Tier::kRam)].memory_bytes);
  }
  std::ranges::sort(sizes);
  sizes.erase(std::ranges::unique(sizes).begin(), sizes.end());
  return sizes.size() <= kSizesMax;
}

/// Moves one block to another tier, or exchanges the tiers of two, as long as that helps.
void improve_placement(std::uint64_t passes_max, PlacementJudge& judge) {
  const std::size_t block_count = judge.best().size();
  passes_max += judge.played_passes();
  bool has_improved = block_count > 0;
  while (has_improved) {
    has_improved = false;
    TierIndexes tiers = judge.best();
    const auto try_tiers = [&] {
      if (judge.consider(tiers)) {
        has_improved = true;
      } else {
        tiers = judge.best();
      }
      return judge.played_passes() <= passes_max;
    };
    for (std::size_t index = 0; index < block_count; ++index) {
      for (std::size_t number = 0; number < kBlockTiers.size(); ++number) {
        const auto tier = static_cast<std::uint8_t>(number);
        if (tier != tiers[index]) {
          tiers[index] = tier;
          if (!try_tiers()) {
            return;
          }
        }
      }
      for (std::size_t other = index + 1; other < block_count; ++other) {
        if (tiers[index] != tiers[other]) {
          std::swap(tiers[index], tiers[other]);
          if (!try_tiers()) {
            return;
          }
        }
      }
    }
  }
}

}  // namespace

std::optional<SearchResult> search_placement(const SearchProblem& problem, SearchMethod method,
                                             std::span<const std::vector<Tier>> others,
                                             std::uint64_t passes_max) {
  const std::uint64_t block_count = std::max<std::uint64_t>(problem.blocks.size(), 1);
  passes_max *= kPassBlocks;
  passes_max /= std::min(block_count, kPassBlocks);
  PlacementJudge judge(problem);
  for (const std::vector<Tier>& other : others) {
    TierIndexes tiers;
    for (const Tier tier : other) {
      tiers.push_back(static_cast<std::uint8_t>(tier_index(tier)));
    }
    judge.consider(tiers);
  }
  const bool has_sizes_to_improve = !has_few_sizes(problem);
  // Where placements are improved after, half of the work is for that. Of few sizes they are all
  // that there is, and mostly reach the bound soon: where they do not, more of them are tried.
  consider_spread_placements(
      problem, has_sizes_to_improve ? passes_max / 2 : kFewSizesFactor * passes_max, judge);
  const bool is_small = placement_count(problem) <= kExactPlacementsMax;
  if (method == SearchMethod::kAutomatic && is_small) {
    ExactSearch(problem, judge).run();
  } else if (has_sizes_to_improve) {
    const std::vector<TierIndexes> starts = filled_placements(problem);
    const std::uint64_t share = passes_max / 2 / (1 + starts.size());
    improve_placement(share, judge);
    for (const TierIndexes& start : starts) {
      PlacementJudge from_start(problem);
      from_start.consider(start);
      improve_placement(share, from_start);
      if (!from_start.best().empty()) {
        judge.consider(from_start.best());
      }
    }
  }
  return judge.result();
}

}  // namespace trash_panda::plan
