#include "placement_search.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "filled_placements.h"
#include "local_search.h"
#include "placement_judge.h"
#include "spread_placements.h"

namespace trash_panda::plan {
namespace {

/// Blocks whose passes the limit of a search is in: fewer blocks may play more, shorter passes.
constexpr std::uint64_t kPassBlocks = 57;

/// Steps that shorten the pass by less than this part, of 57 blocks or fewer, are not taken while
/// the search looks for the best placement: there are many of them.
constexpr double kSearchedGain = 1e-4;

/// No move and no exchange shortens the pass of what is found by more than this part.
constexpr double kPromisedGain = 0.002;

/// What making sure of that may play, in limits of a search: mostly a small part is enough.
constexpr std::uint64_t kPolishFactor = 4;

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
      times.add(choice.cost);
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
  // Half of the work is for placements that spread blocks evenly, the other for improving what is
  // found.
  consider_spread_placements(problem, passes_max / 2, judge);
  if (method == SearchMethod::kAutomatic && placement_count(problem) <= kExactPlacementsMax) {
    ExactSearch(problem, judge).run();
    return judge.result();
  }
  const double searched_gain =
      kSearchedGain * static_cast<double>(std::max(block_count, kPassBlocks)) / kPassBlocks;
  const std::vector<TierIndexes> starts = filled_placements(problem);
  const std::uint64_t share = passes_max / 2 / (1 + starts.size());
  improve_placement(problem, searched_gain, share, judge);
  for (const TierIndexes& start : starts) {
    PlacementJudge from_start(problem);
    from_start.consider(start);
    improve_placement(problem, searched_gain, share, from_start);
    if (!from_start.best().empty()) {
      judge.consider(from_start.best());
    }
  }
  improve_placement(problem, kPromisedGain, kPolishFactor * passes_max, judge);
  return judge.result();
}

}  // namespace trash_panda::plan
