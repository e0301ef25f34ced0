#include "local_search.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace trash_panda::plan {
namespace {

/// Sums that are kept up to date differ from those added up anew by rounding, by less than this
/// part.
constexpr double kRoundingPart = 1e-9;

/// One block and the tier that it would go to.
struct Move {
  std::size_t index = 0;
  std::uint8_t tier = 0;
};

/// Whether each channel is kept busy as long as before or longer.
bool is_never_faster(const BlockCost& before, const BlockCost& after) {
  return after.read_s >= before.read_s && after.decode_s >= before.decode_s &&
         after.copy_s >= before.copy_s && after.compute_s >= before.compute_s;
}

/// The largest slots that blocks need, of three blocks: whichever two of all leave, the largest of
/// the others is known.
class LargestSlots {
 public:
  void clear() { largest_.clear(); }
  void add(std::size_t index, std::uint64_t bytes) {
    if (bytes == 0 || (largest_.size() == kKept && bytes <= largest_.back().first)) {
      return;
    }
    largest_.emplace_back(bytes, index);
    std::ranges::stable_sort(largest_, std::ranges::greater(),
                             &std::pair<std::uint64_t, std::size_t>::first);
    largest_.resize(std::min(largest_.size(), kKept));
  }
  /// What the largest slot is at least when any two blocks leave.
  [[nodiscard]] std::uint64_t least_of_three() const {
    return largest_.size() == kKept ? largest_.back().first : 0;
  }
  /// Without the blocks that move.
  [[nodiscard]] std::uint64_t largest_without(std::span<const Move> moves) const {
    for (const auto& [bytes, index] : largest_) {
      if (std::ranges::find(moves, index, &Move::index) == moves.end()) {
        return bytes;
      }
    }
    return 0;
  }

 private:
  static constexpr std::size_t kKept = 3;
  std::vector<std::pair<std::uint64_t, std::size_t>> largest_;
};

class LocalSearch {
 public:
  LocalSearch(const SearchProblem& problem, double least_gain, std::uint64_t passes_max,
              PlacementJudge& judge)
      : problem_(problem),
        least_gain_(least_gain),
        passes_max_(judge.played_passes() + passes_max),
        judge_(judge) {
    follow_judge();
  }

  void run() {
    bool has_improved = !tiers_.empty();
    while (has_improved) {
      has_improved = false;
      for (std::size_t index = 0; index < tiers_.size(); ++index) {
        has_improved |= try_tiers_of(index);
        has_improved |= try_exchanges_of(index);
        if (judge_.played_passes() > passes_max_) {
          return;
        }
      }
    }
  }

 private:
  [[nodiscard]] const TierChoice& choice(const Move& move) const {
    return problem_.blocks[move.index].choices[move.tier];
  }

  bool try_tiers_of(std::size_t index) {
    bool has_improved = false;
    for (std::size_t number = 0; number < kBlockTiers.size(); ++number) {
      const auto tier = static_cast<std::uint8_t>(number);
      if (tier != tiers_[index]) {
        // A faster tier that makes no difference leaves more to what shares the slower one.
        const double least_gain = tier < tiers_[index] ? 0 : least_gain_;
        has_improved |= try_moves(std::array{Move{.index = index, .tier = tier}}, least_gain);
      }
    }
    return has_improved;
  }

  bool try_exchanges_of(std::size_t index) {
    bool has_improved = false;
    for (std::size_t other = index + 1; other < tiers_.size(); ++other) {
      if (tiers_[index] != tiers_[other] && may_exchange(index, other) &&
          judge_.played_passes() <= passes_max_) {
        has_improved |= try_moves(std::array{Move{.index = index, .tier = tiers_[other]},
                                             Move{.index = other, .tier = tiers_[index]}},
                                  least_gain_);
      }
    }
    return has_improved;
  }

  /// Whether memory and the sums of the channels let an exchange help, at a glance: of hundreds of
  /// blocks there are tens of thousands.
  [[nodiscard]] bool may_exchange(std::size_t index, std::size_t other) const {
    const Change& one = changes_[index * kBlockTiers.size() + tiers_[other]];
    const Change& another = changes_[other * kBlockTiers.size() + tiers_[index]];
    double bound_s = 0;
    for (std::size_t at = 0; at < kChannels.size(); ++at) {
      bound_s = std::max(bound_s, totals_.times.busy_s[at] + one.busy_s[at] + another.busy_s[at]);
    }
    return bound_s <= judge_.best_pass_s() * (1 - least_gain_) * (1 + kRoundingPart) &&
           one.vram_bytes + another.vram_bytes <= vram_room_bytes_ &&
           one.ram_bytes + another.ram_bytes <= ram_room_bytes_;
  }

  bool try_moves(std::span<const Move> moves, double least_gain) {
    if (!can_gain(moves, least_gain)) {
      return false;
    }
    candidate_ = tiers_;
    for (const Move& move : moves) {
      candidate_[move.index] = move.tier;
    }
    if (!judge_.consider(candidate_, least_gain)) {
      return false;
    }
    follow_judge();
    return true;
  }

  /// Whether the placement after the moves may be taken, by all that is known without simulating
  /// it.
  bool can_gain(std::span<const Move> moves, double least_gain) {
    PlacementTotals totals = totals_;
    totals.host_slot_bytes = host_slots_.largest_without(moves);
    totals.device_slot_bytes = device_slots_.largest_without(moves);
    for (const Move& move : moves) {
      if (!choice(move).is_allowed) {
        return false;
      }
      totals.subtract(choice({.index = move.index, .tier = tiers_[move.index]}),
                      tiers_[move.index]);
      totals.add(choice(move), move.tier);
    }
    const double limit_s = judge_.best_pass_s() * (1 - least_gain);
    if (totals.times.bound_s() > limit_s * (1 + kRoundingPart) ||
        (problem_.resident_count && totals.resident_count != *problem_.resident_count)) {
      return false;
    }
    const std::optional<SlotCounts> slots = most_slots(problem_, totals);
    return slots && (least_gain == 0 || helps_by_itself(moves, *slots));
  }

  /// Whether the pass would be shorter with only the moves that make a block faster in some way,
  /// and so many slots: what becomes slower can only make it longer again.
  bool helps_by_itself(std::span<const Move> moves, const SlotCounts& slots) {
    const auto is_faster = [this](const Move& move) {
      return !is_never_faster(choice({.index = move.index, .tier = tiers_[move.index]}).cost,
                              choice(move).cost);
    };
    if (moves.size() > 1 && std::ranges::all_of(moves, is_faster)) {
      return true;  // Not worth remembering: only forms that differ by tier make that so.
    }
    const auto faster = std::ranges::find_if(moves, is_faster);
    const Move move = faster == moves.end() ? Move{.index = 0, .tier = tiers_.front()} : *faster;
    Answer& answer = known_answer(move, slots);
    if (answer == Answer::kUnknown) {
      candidate_ = tiers_;
      candidate_[move.index] = move.tier;
      ChannelTimes times = totals_.times;
      times.subtract(choice({.index = move.index, .tier = tiers_[move.index]}).cost);
      times.add(choice(move).cost);
      const double limit_s = judge_.best_pass_s() * (1 - least_gain_);
      answer =
          judge_.is_faster_than(limit_s, candidate_, times, slots) ? Answer::kYes : Answer::kNo;
    }
    return answer == Answer::kYes;
  }

  enum class Answer : std::uint8_t { kUnknown, kYes, kNo };

  /// What was found out about a move with so many slots, since the placement last changed.
  Answer& known_answer(const Move& move, const SlotCounts& slots) {
    auto known = std::ranges::find(answers_, slots, &SlotAnswers::first);
    if (known == answers_.end()) {
      answers_.emplace_back(slots,
                            std::vector(tiers_.size() * kBlockTiers.size(), Answer::kUnknown));
      known = std::prev(answers_.end());
    }
    return known->second[move.index * kBlockTiers.size() + move.tier];
  }

  /// Takes over the judge's best placement.
  void follow_judge() {
    tiers_ = judge_.best();
    totals_ = {};
    host_slots_.clear();
    device_slots_.clear();
    answers_.clear();
    for (std::size_t index = 0; index < tiers_.size(); ++index) {
      const TierChoice& chosen = choice({.index = index, .tier = tiers_[index]});
      totals_.add(chosen, tiers_[index]);
      host_slots_.add(index, chosen.host_slot_bytes);
      device_slots_.add(index, chosen.device_slot_bytes);
    }
    changes_.clear();
    for (std::size_t index = 0; index < tiers_.size(); ++index) {
      for (std::size_t tier = 0; tier < kBlockTiers.size(); ++tier) {
        changes_.push_back(change_of({.index = index, .tier = static_cast<std::uint8_t>(tier)}));
      }
    }
    vram_room_bytes_ = room_bytes(problem_.vram_bytes, totals_.vram_bytes, device_slots_,
                                  problem_.device_slot_counts, totals_.device_slot_users);
    ram_room_bytes_ = room_bytes(problem_.ram_bytes, totals_.ram_bytes, host_slots_,
                                 problem_.host_slot_counts, totals_.host_slot_users);
  }

  /// What a move changes in the sums over all blocks.
  struct Change {
    std::array<double, kChannels.size()> busy_s;
    std::int64_t vram_bytes = 0;
    std::int64_t ram_bytes = 0;
  };

  [[nodiscard]] Change change_of(const Move& move) const {
    PlacementTotals before;
    PlacementTotals after;
    before.add(choice({.index = move.index, .tier = tiers_[move.index]}), tiers_[move.index]);
    after.add(choice(move), move.tier);
    Change change;
    for (std::size_t at = 0; at < kChannels.size(); ++at) {
      change.busy_s[at] = after.times.busy_s[at] - before.times.busy_s[at];
    }
    change.vram_bytes = static_cast<std::int64_t>(after.vram_bytes - before.vram_bytes);
    change.ram_bytes = static_cast<std::int64_t>(after.ram_bytes - before.ram_bytes);
    return change;
  }

  /// Memory that is left beside the blocks and the fewest slots that there are after an exchange,
  /// whichever it is.
  [[nodiscard]] static std::int64_t room_bytes(std::uint64_t memory_bytes,
                                               std::uint64_t block_bytes, const LargestSlots& slots,
                                               std::span<const std::size_t> counts,
                                               std::size_t user_count) {
    const std::uint64_t slot_count =
        std::min(counts.back(), user_count - std::min<std::size_t>(user_count, 1));
    return static_cast<std::int64_t>(memory_bytes - block_bytes -
                                     slot_count * slots.least_of_three());
  }

  using SlotAnswers = std::pair<SlotCounts, std::vector<Answer>>;

  const SearchProblem& problem_;
  double least_gain_;
  std::uint64_t passes_max_;
  PlacementJudge& judge_;
  TierIndexes tiers_;
  TierIndexes candidate_;
  PlacementTotals totals_;
  LargestSlots host_slots_;
  LargestSlots device_slots_;
  std::vector<SlotAnswers> answers_;
  std::vector<Change> changes_;  ///< Of each move, by block, then tier.
  std::int64_t vram_room_bytes_ = 0;
  std::int64_t ram_room_bytes_ = 0;
};

}  // namespace

void improve_placement(const SearchProblem& problem, double least_gain, std::uint64_t passes_max,
                       PlacementJudge& judge) {
  LocalSearch(problem, least_gain, passes_max, judge).run();
}

}  // namespace trash_panda::plan
