#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "pass_state.h"
#include "placement_search.h"

namespace trash_panda::plan {

/// A choice of tier for every block, as an index into kBlockTiers.
using TierIndexes = std::vector<std::uint8_t>;

/// Weighs placements and keeps the best.
class PlacementJudge {
 public:
  explicit PlacementJudge(const SearchProblem& problem) : problem_(problem) {}

  /// Takes the placement if it is allowed, fits, and is better than the best so far.
  ///
  /// Better is a shorter pass; of equal ones that with fewer bytes to read, then to copy, in each
  /// pass; of those the first.
  ///
  /// @return Whether it was taken.
  bool consider(const TierIndexes& tiers);

  /// The best placement so far, empty before there is one, and its pass.
  [[nodiscard]] const TierIndexes& best() const { return best_; }
  [[nodiscard]] double best_pass_s() const { return best_pass_s_; }
  /// Whether a placement that takes at least so much can be better than the best so far.
  [[nodiscard]] bool can_improve(const ChannelTimes& least) const {
    return is_better(least.bound_s(), least);
  }
  /// Passes played so far, in which looking at a placement counts as one.
  [[nodiscard]] std::uint64_t played_passes() const { return played_passes_; }
  [[nodiscard]] std::optional<SearchResult> result() const;

 private:
  /// Passes that differ by less than this part are equal: rounding in the simulation.
  static constexpr double kEqualPart = 1e-11;

  struct Totals {
    ChannelTimes times;
    std::uint64_t vram_bytes = 0;
    std::uint64_t ram_bytes = 0;
    std::uint64_t host_slot_bytes = 0;
    std::uint64_t device_slot_bytes = 0;
    std::size_t host_slot_users = 0;
    std::size_t device_slot_users = 0;
    std::uint64_t resident_count = 0;
  };

  [[nodiscard]] std::optional<Totals> add_up(const TierIndexes& tiers) const;
  /// Whether a pass of this length would be taken: a tie goes to the placement with less to read,
  /// then less to copy.
  [[nodiscard]] bool is_better(double pass_s, const ChannelTimes& times) const {
    const bool wins_ties =
        best_.empty() || std::pair(times[Channel::kDisk], times[Channel::kLink]) <
                             std::pair(best_times_[Channel::kDisk], best_times_[Channel::kLink]);
    return wins_ties ? pass_s <= best_pass_s_ * (1 + kEqualPart)
                     : pass_s < best_pass_s_ * (1 - kEqualPart);
  }
  [[nodiscard]] double simulate(const TierIndexes& tiers, const ChannelTimes& times,
                                std::size_t host_slot_count, std::size_t device_slot_count);

  const SearchProblem& problem_;
  TierIndexes best_;
  double best_pass_s_ = std::numeric_limits<double>::infinity();
  ChannelTimes best_times_;
  std::size_t best_host_slot_count_ = 0;
  std::size_t best_device_slot_count_ = 0;
  std::uint64_t played_passes_ = 0;
};

}  // namespace trash_panda::plan
