#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "pass_state.h"
#include "placement_search.h"
#include "steady_state.h"

namespace trash_panda::plan {

/// A choice of tier for every block, as an index into kBlockTiers.
using TierIndexes = std::vector<std::uint8_t>;

/// What the blocks of a placement take together.
struct PlacementTotals {
  ChannelTimes times;
  std::uint64_t vram_bytes = 0;
  std::uint64_t ram_bytes = 0;
  std::uint64_t host_slot_bytes = 0;  ///< Of one slot: the largest that a block needs.
  std::uint64_t device_slot_bytes = 0;
  std::size_t host_slot_users = 0;
  std::size_t device_slot_users = 0;
  std::uint64_t resident_count = 0;

  /// Counts a block in.
  void add(const TierChoice& choice, std::size_t tier);
  /// Counts a block out again, but for the sizes of slots, which the caller sets.
  void subtract(const TierChoice& choice, std::size_t tier);
};

struct SlotCounts {
  std::size_t host = 0;
  std::size_t device = 0;

  bool operator==(const SlotCounts&) const = default;
};

/// The most slots that there is memory for; nothing where not even the fewest fit, or where the
/// blocks alone do not keep within the memory.
[[nodiscard]] std::optional<SlotCounts> most_slots(const SearchProblem& problem,
                                                   const PlacementTotals& totals);

/// Weighs placements and keeps the best.
class PlacementJudge {
 public:
  explicit PlacementJudge(const SearchProblem& problem) : problem_(problem) {}

  /// Takes the placement if it is allowed, fits, and is better than the best so far.
  ///
  /// Better is a shorter pass; of equal ones that with fewer bytes to read, then to copy, in each
  /// pass; of those the first.
  ///
  /// @param least_gain  Part of the best pass by which another one has to be shorter, if not 0.
  /// @return Whether it was taken.
  bool consider(const TierIndexes& tiers, double least_gain = 0);

  /// The best placement so far, empty before there is one, and its pass.
  [[nodiscard]] const TierIndexes& best() const { return best_; }
  [[nodiscard]] double best_pass_s() const { return best_pass_s_; }
  /// Whether a placement that takes at least so much can be better than the best so far.
  [[nodiscard]] bool can_improve(const ChannelTimes& least) const {
    return is_better(least.bound_s(), least, 0);
  }
  /// Whether a placement with that many slots takes less than `pass_s`; whether it is allowed or
  /// fits is not asked.
  [[nodiscard]] bool is_faster_than(double pass_s, const TierIndexes& tiers,
                                    const ChannelTimes& times, const SlotCounts& slots);
  /// Passes played so far, in which looking at a placement counts as one.
  [[nodiscard]] std::uint64_t played_passes() const { return played_passes_; }
  [[nodiscard]] std::optional<SearchResult> result() const;

 private:
  /// Passes that differ by less than this part are equal: rounding in the simulation.
  static constexpr double kEqualPart = 1e-11;

  [[nodiscard]] std::optional<PlacementTotals> add_up(const TierIndexes& tiers) const;
  /// A pass that is no shorter is not taken: of ties the placement with less to read, then less to
  /// copy, is better.
  [[nodiscard]] double longest_better_s(const ChannelTimes& times, double least_gain) const {
    const bool wins_ties =
        best_.empty() || std::pair(times[Channel::kDisk], times[Channel::kLink]) <
                             std::pair(best_times_[Channel::kDisk], best_times_[Channel::kLink]);
    return best_pass_s_ * (least_gain > 0 ? 1 - least_gain
                           : wins_ties    ? 1 + kEqualPart
                                          : 1 - kEqualPart);
  }
  [[nodiscard]] bool is_better(double pass_s, const ChannelTimes& times, double least_gain) const {
    return best_.empty() || pass_s < longest_better_s(times, least_gain);
  }
  [[nodiscard]] PassState idle_state(const SlotCounts& slots) const;
  double simulate(PassState& state, const TierIndexes& tiers, const ChannelTimes& times,
                  double give_up_s);

  const SearchProblem& problem_;
  TierIndexes best_;
  double best_pass_s_ = std::numeric_limits<double>::infinity();
  ChannelTimes best_times_;
  SlotCounts best_slots_;
  /// The steady state of the best placement: from there, those like it soon are in theirs.
  std::optional<PassState> best_state_;
  std::optional<PassState> state_;  ///< Keeps its memory from one simulation to the next.
  SteadyState steady_state_;
  std::uint64_t played_passes_ = 0;
};

}  // namespace trash_panda::plan
