#include "spread_placements.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "placement.h"

namespace trash_panda::plan {
namespace {

/// Kinds of blocks that are counted apart at most.
constexpr std::size_t kSizeKindsMax = 3;
/// Combinations of numbers that are listed at most for each pass that may be played; beyond,
/// numbers are skipped. Listing so many takes about as long as playing a pass of 57 blocks.
constexpr std::uint64_t kCountsPerPass = 8;
/// Where the first of evenly spread blocks lies within its share.
constexpr std::array kPhases = {0.5, 0.0, 0.25, 0.75};

/// Blocks of about one size whose tier is open, in execution order.
using Kind = std::vector<std::size_t>;

/// How many blocks of a kind are resident and on disk.
struct KindCounts {
  std::uint32_t resident = 0;
  std::uint32_t disk = 0;

  auto operator<=>(const KindCounts&) const = default;
};

/// One number of blocks for each kind, with what its placements take at least.
struct CountVector {
  std::array<KindCounts, kSizeKindsMax> kinds = {};
  ChannelTimes least;

  /// What is tried first: what can be fastest, then what reads and copies least.
  [[nodiscard]] auto rank() const {
    return std::tuple(least.bound_s(), least[Channel::kDisk], least[Channel::kLink], kinds);
  }
};

/// For one kind: what its n cheapest blocks add, by n.
struct KindSums {
  std::vector<double> read_s;
  std::vector<double> copy_s;
  std::vector<std::uint64_t> vram_bytes;
  std::vector<std::uint64_t> ram_bytes;
  std::uint64_t host_slot_bytes = 0;
  std::uint64_t device_slot_bytes = 0;
  std::uint32_t resident_max = 0;  ///< Members that may be.
  std::uint32_t disk_max = 0;
};

template <class T, class Value>
std::vector<T> rising_sums(const Kind& kind, const Value& value) {
  std::vector<T> values;
  for (const std::size_t index : kind) {
    values.push_back(value(index));
  }
  std::ranges::sort(values);
  std::vector<T> sums = {T{}};
  for (const T& one : values) {
    sums.push_back(sums.back() + one);
  }
  return sums;
}

template <class Value>
std::uint64_t least_of(const Kind& kind, const Value& value) {
  std::uint64_t least = value(kind.front());
  for (const std::size_t index : kind) {
    least = std::min(least, value(index));
  }
  return least;
}

class SpreadSearch {
 public:
  SpreadSearch(const SearchProblem& problem, std::uint64_t passes_max, PlacementJudge& judge)
      : problem_(problem), passes_max_(passes_max), judge_(judge), tiers_(problem.blocks.size()) {
    for (std::size_t index = 0; index < problem.blocks.size(); ++index) {
      const auto& choices = problem.blocks[index].choices;
      if (std::ranges::count_if(choices, &TierChoice::is_allowed) > 1) {
        free_.push_back(index);
      } else {
        const auto only = std::ranges::find_if(choices, &TierChoice::is_allowed);
        tiers_[index] = static_cast<std::uint8_t>(only - choices.begin());
        fixed_.push_back(index);
      }
    }
  }

  void run() {
    if (free_.empty()) {
      judge_.consider(tiers_);
      return;
    }
    std::vector<std::vector<Kind>> splits;
    for (std::size_t kind_count = 1; kind_count <= kSizeKindsMax; ++kind_count) {
      std::vector<Kind> kinds = split_into_kinds(kind_count);
      if (kinds.size() == kind_count) {
        splits.push_back(std::move(kinds));
      }
    }
    for (const std::vector<Kind>& kinds : splits) {
      search(kinds, passes_max_ / splits.size());
    }
  }

 private:
  [[nodiscard]] const TierChoice& choice(std::size_t index, Tier tier) const {
    return problem_.blocks[index].choices[tier_index(tier)];
  }
  [[nodiscard]] std::uint32_t allowed_count(const Kind& kind, Tier tier) const {
    return static_cast<std::uint32_t>(std::ranges::count_if(
        kind, [this, tier](std::size_t index) { return choice(index, tier).is_allowed; }));
  }
  [[nodiscard]] std::uint64_t size_bytes(std::size_t index) const {
    return choice(index, Tier::kRam).memory_bytes;
  }

  /// Free blocks by size: cut where neighbours in size differ most.
  [[nodiscard]] std::vector<Kind> split_into_kinds(std::size_t kind_count) const {
    std::vector<std::size_t> by_size = free_;
    std::ranges::stable_sort(by_size, {}, [this](std::size_t index) { return size_bytes(index); });
    // Steps in size, largest first; the last block before each.
    std::vector<std::pair<double, std::size_t>> steps;
    for (std::size_t at = 0; at + 1 < by_size.size(); ++at) {
      const auto low = static_cast<double>(size_bytes(by_size[at]));
      const auto high = static_cast<double>(size_bytes(by_size[at + 1]));
      if (high > low) {
        steps.emplace_back(low > 0 ? -high / low : -high, at);
      }
    }
    std::ranges::stable_sort(steps);
    steps.resize(std::min(steps.size(), kind_count - 1));
    std::vector<std::size_t> cuts;
    for (const auto& [ratio, at] : steps) {
      cuts.push_back(at + 1);
    }
    std::ranges::sort(cuts);
    cuts.push_back(by_size.size());
    std::vector<Kind> kinds;
    std::size_t begin = 0;
    for (const std::size_t end : cuts) {
      Kind kind(by_size.begin() + static_cast<std::ptrdiff_t>(begin),
                by_size.begin() + static_cast<std::ptrdiff_t>(end));
      std::ranges::sort(kind);
      kinds.push_back(std::move(kind));
      begin = end;
    }
    return kinds;
  }

  /// @param share  Passes that may be played for it.
  void search(const std::vector<Kind>& kinds, std::uint64_t share) {
    std::vector<CountVector> counts = list_counts(kinds);
    // No more can be tried than there are passes to play.
    counts.resize(sort_first(counts, share + 1));
    const std::uint64_t passes_max = judge_.played_passes() + share;
    for (const CountVector& count : counts) {
      if (!judge_.can_improve(count.least) || judge_.played_passes() > passes_max) {
        return;  // Nor can those after it, which take no less.
      }
      consider_arrangements(kinds, count);
    }
  }

  /// Sorts the best `count` to the front. @return How many those are.
  static std::size_t sort_first(std::vector<CountVector>& counts, std::uint64_t count) {
    const auto sorted = std::min<std::size_t>(counts.size(), count);
    std::ranges::partial_sort(counts, counts.begin() + static_cast<std::ptrdiff_t>(sorted), {},
                              &CountVector::rank);
    return sorted;
  }

  /// All numbers of blocks that can fit and can be better than what is known.
  [[nodiscard]] std::vector<CountVector> list_counts(const std::vector<Kind>& kinds) const {
    std::vector<KindSums> sums;
    std::uint64_t combination_count = 1;
    for (const Kind& kind : kinds) {
      sums.push_back(
          {.read_s = rising_sums<double>(
               kind, [this](std::size_t at) { return choice(at, Tier::kDisk).cost.read_s; }),
           .copy_s = rising_sums<double>(
               kind, [this](std::size_t at) { return choice(at, Tier::kRam).cost.copy_s; }),
           .vram_bytes = rising_sums<std::uint64_t>(
               kind, [this](std::size_t at) { return choice(at, Tier::kGpu).memory_bytes; }),
           .ram_bytes = rising_sums<std::uint64_t>(
               kind, [this](std::size_t at) { return choice(at, Tier::kRam).memory_bytes; }),
           .host_slot_bytes = least_of(
               kind, [this](std::size_t at) { return choice(at, Tier::kDisk).host_slot_bytes; }),
           .device_slot_bytes = least_of(
               kind, [this](std::size_t at) { return choice(at, Tier::kRam).device_slot_bytes; }),
           .resident_max = allowed_count(kind, Tier::kGpu),
           .disk_max = allowed_count(kind, Tier::kDisk)});
      combination_count *= (kind.size() + 1) * (kind.size() + 2) / 2;
    }
    // Every so many-th number of each kind, so that the list stays short.
    std::uint32_t stride = 1;
    while (combination_count > kCountsPerPass * passes_max_) {
      stride *= 2;
      combination_count >>= 2 * kinds.size();
    }
    std::vector<CountVector> list;
    PlacementTotals fixed;
    for (const std::size_t index : fixed_) {
      fixed.add(problem_.blocks[index].choices[tiers_[index]], tiers_[index]);
    }
    for (const std::size_t index : free_) {
      fixed.times.add({.compute_s = choice(index, Tier::kRam).cost.compute_s});
    }
    list_kind(kinds, sums, 0, stride, fixed, {}, list);
    return list;
  }

  void list_kind(const std::vector<Kind>& kinds, const std::vector<KindSums>& sums, std::size_t at,
                 std::uint32_t stride, const PlacementTotals& so_far, CountVector counts,
                 std::vector<CountVector>& list) const {
    if (!most_slots(problem_, so_far) ||
        std::max(so_far.times[Channel::kDisk], so_far.times[Channel::kLink]) >
            judge_.best_pass_s()) {
      return;
    }
    if (at == kinds.size()) {
      counts.least = so_far.times;
      if (judge_.can_improve(counts.least) &&
          (!problem_.resident_count || so_far.resident_count == *problem_.resident_count)) {
        list.push_back(counts);
      }
      return;
    }
    TP_ASSERT(at < counts.kinds.size());
    const auto size = static_cast<std::uint32_t>(kinds[at].size());
    // Where numbers are skipped, the largest is among them all the same.
    const auto following = [stride](std::uint32_t number, std::uint32_t max) {
      return number < max ? std::min(number + stride, max) : max + 1;
    };
    for (std::uint32_t resident = 0; resident <= sums[at].resident_max;
         resident = following(resident, sums[at].resident_max)) {
      const std::uint32_t streamed = size - resident;
      const std::uint32_t disk_max = std::min(streamed, sums[at].disk_max);
      for (std::uint32_t disk = 0; disk <= disk_max; disk = following(disk, disk_max)) {
        PlacementTotals sum = so_far;
        sum.times.add({.read_s = sums[at].read_s[disk], .copy_s = sums[at].copy_s[streamed]});
        sum.vram_bytes += sums[at].vram_bytes[resident];
        sum.ram_bytes += sums[at].ram_bytes[streamed - disk];
        sum.resident_count += resident;
        sum.host_slot_users += disk;
        if (disk > 0) {
          sum.host_slot_bytes = std::max(sum.host_slot_bytes, sums[at].host_slot_bytes);
        }
        if (sums[at].device_slot_bytes > 0) {
          sum.device_slot_users += streamed;
        }
        if (streamed > 0) {
          sum.device_slot_bytes = std::max(sum.device_slot_bytes, sums[at].device_slot_bytes);
        }
        CountVector next = counts;
        next.kinds[at] = {.resident = resident, .disk = disk};
        list_kind(kinds, sums, at + 1, stride, sum, next, list);
      }
    }
  }

  /// Marks `count` of the members with `tier`, evenly from `phase` on.
  void mark(std::span<const std::size_t> members, std::size_t count, double phase, Tier tier,
            std::vector<std::size_t>& others) {
    const double per_member =
        members.empty() ? 0 : static_cast<double>(count) / static_cast<double>(members.size());
    double before = std::floor(phase);
    for (std::size_t at = 0; at < members.size(); ++at) {
      // Half a millionth keeps the last sum on the right side of a whole number.
      const double after = std::floor(static_cast<double>(at + 1) * per_member + phase + 5e-7);
      if (after > before) {
        tiers_[members[at]] = static_cast<std::uint8_t>(tier_index(tier));
      } else {
        others.push_back(members[at]);
      }
      before = after;
    }
  }

  void consider_arrangements(const std::vector<Kind>& kinds, const CountVector& count) {
    std::vector<std::size_t> streamed;
    std::vector<std::size_t> in_ram;
    for (const double resident_phase : kPhases) {
      for (const double disk_phase : kPhases) {
        in_ram.clear();
        for (std::size_t at = 0; at < kinds.size(); ++at) {
          streamed.clear();
          mark(kinds[at], count.kinds[at].resident, resident_phase, Tier::kGpu, streamed);
          mark(streamed, count.kinds[at].disk, disk_phase, Tier::kDisk, in_ram);
        }
        for (const std::size_t index : in_ram) {
          tiers_[index] = static_cast<std::uint8_t>(tier_index(Tier::kRam));
        }
        judge_.consider(tiers_);
        if (!judge_.can_improve(count.least)) {
          return;
        }
      }
    }
    if (kinds.size() == 1) {
      consider_prefix(kinds.front(), count.kinds.front());
    }
  }

  /// The first blocks resident, and of the others the last ones or evenly spread ones on disk:
  /// what simpler planners do.
  void consider_prefix(const Kind& kind, const KindCounts& count) {
    const std::span<const std::size_t> all(kind);
    const std::span<const std::size_t> streamed = all.subspan(count.resident);
    for (const bool is_spread : {true, false}) {
      for (std::size_t at = 0; at < all.size(); ++at) {
        const Tier tier = at < count.resident                           ? Tier::kGpu
                          : !is_spread && at + count.disk >= all.size() ? Tier::kDisk
                                                                        : Tier::kRam;
        tiers_[all[at]] = static_cast<std::uint8_t>(tier_index(tier));
      }
      if (is_spread) {
        for (const std::size_t position : spread_evenly(count.disk, streamed.size())) {
          tiers_[streamed[position]] = static_cast<std::uint8_t>(tier_index(Tier::kDisk));
        }
      }
      judge_.consider(tiers_);
    }
  }

  const SearchProblem& problem_;
  std::uint64_t passes_max_;
  PlacementJudge& judge_;
  TierIndexes tiers_;
  std::vector<std::size_t> free_;
  std::vector<std::size_t> fixed_;
};

}  // namespace

void consider_spread_placements(const SearchProblem& problem, std::uint64_t passes_max,
                                PlacementJudge& judge) {
  SpreadSearch(problem, passes_max, judge).run();
}

}  // namespace trash_panda::plan
