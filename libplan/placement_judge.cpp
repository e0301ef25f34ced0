#include "placement_judge.h"

#include <algorithm>
#include <span>

namespace trash_panda::plan {
namespace {

/// The largest number of slots that there is memory for; nothing when not even the smallest fits.
std::optional<std::size_t> most_slots(std::span<const std::size_t> counts, std::size_t user_count,
                                      std::uint64_t slot_bytes, std::uint64_t memory_bytes) {
  if (user_count == 0) {
    return 0;
  }
  for (const std::size_t count : counts) {
    const std::size_t used_count = std::min(count, user_count);
    if (slot_bytes <= memory_bytes / used_count) {
      return used_count;
    }
  }
  return std::nullopt;
}

}  // namespace

void PlacementTotals::add(const TierChoice& choice, std::size_t tier) {
  const bool is_gpu = tier == tier_index(Tier::kGpu);
  times.add(choice.cost);
  (is_gpu ? vram_bytes : ram_bytes) += choice.memory_bytes;
  host_slot_bytes = std::max(host_slot_bytes, choice.host_slot_bytes);
  device_slot_bytes = std::max(device_slot_bytes, choice.device_slot_bytes);
  host_slot_users += choice.host_slot_bytes > 0 ? 1U : 0U;
  device_slot_users += choice.device_slot_bytes > 0 ? 1U : 0U;
  resident_count += is_gpu ? 1U : 0U;
}

void PlacementTotals::subtract(const TierChoice& choice, std::size_t tier) {
  const bool is_gpu = tier == tier_index(Tier::kGpu);
  times.subtract(choice.cost);
  (is_gpu ? vram_bytes : ram_bytes) -= choice.memory_bytes;
  host_slot_users -= choice.host_slot_bytes > 0 ? 1U : 0U;
  device_slot_users -= choice.device_slot_bytes > 0 ? 1U : 0U;
  resident_count -= is_gpu ? 1U : 0U;
}

std::optional<SlotCounts> most_slots(const SearchProblem& problem, const PlacementTotals& totals) {
  if (totals.vram_bytes > problem.vram_bytes || totals.ram_bytes > problem.ram_bytes) {
    return std::nullopt;
  }
  const std::optional<std::size_t> host =
      most_slots(problem.host_slot_counts, totals.host_slot_users, totals.host_slot_bytes,
                 problem.ram_bytes - totals.ram_bytes);
  const std::optional<std::size_t> device =
      most_slots(problem.device_slot_counts, totals.device_slot_users, totals.device_slot_bytes,
                 problem.vram_bytes - totals.vram_bytes);
  return host && device ? std::optional(SlotCounts{.host = *host, .device = *device})
                        : std::nullopt;
}

std::optional<PlacementTotals> PlacementJudge::add_up(const TierIndexes& tiers) const {
  PlacementTotals totals;
  for (std::size_t index = 0; index < tiers.size(); ++index) {
    const TierChoice& choice = problem_.blocks[index].choices[tiers[index]];
    if (!choice.is_allowed) {
      return std::nullopt;
    }
    totals.add(choice, tiers[index]);
  }
  if (problem_.resident_count && totals.resident_count != *problem_.resident_count) {
    return std::nullopt;
  }
  return totals;
}

PassState PlacementJudge::idle_state(const SlotCounts& slots) const {
  return {std::max<std::size_t>(slots.host, 1), std::max<std::size_t>(slots.device, 1),
          problem_.has_link};
}

double PlacementJudge::simulate(PassState& state, const TierIndexes& tiers,
                                const ChannelTimes& times, double give_up_s) {
  const auto run_pass = [&](PassState& running) {
    ++played_passes_;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      running.step(problem_.blocks[index].choices[tiers[index]].cost);
    }
  };
  return steady_state_.run(state, times, run_pass, give_up_s);
}

bool PlacementJudge::is_faster_than(double pass_s, const TierIndexes& tiers,
                                    const ChannelTimes& times, const SlotCounts& slots) {
  if (best_state_ && slots == best_slots_) {
    state_ = best_state_;
  } else {
    state_ = idle_state(slots);
  }
  return simulate(*state_, tiers, times, pass_s) < pass_s;
}

bool PlacementJudge::consider(const TierIndexes& tiers, double least_gain) {
  ++played_passes_;
  const std::optional<PlacementTotals> totals = add_up(tiers);
  if (!totals || !is_better(totals->times.bound_s(), totals->times, least_gain)) {
    return false;
  }
  const std::optional<SlotCounts> slots = most_slots(problem_, *totals);
  if (!slots) {
    return false;
  }
  const double limit_s = longest_better_s(totals->times, least_gain);
  if (best_state_ && !is_faster_than(limit_s, tiers, totals->times, *slots)) {
    return false;
  }
  PassState state = idle_state(*slots);
  const double pass_s =
      simulate(state, tiers, totals->times, std::numeric_limits<double>::infinity());
  if (!is_better(pass_s, totals->times, least_gain)) {
    return false;
  }
  best_ = tiers;
  best_pass_s_ = std::min(pass_s, best_pass_s_);
  best_times_ = totals->times;
  best_slots_ = *slots;
  best_state_ = std::move(state);
  return true;
}

std::optional<SearchResult> PlacementJudge::result() const {
  if (best_.empty() && !problem_.blocks.empty()) {
    return std::nullopt;
  }
  SearchResult result;
  for (const std::uint8_t index : best_) {
    result.tiers.push_back(kBlockTiers[index]);
  }
  result.host_slot_count = best_slots_.host;
  result.device_slot_count = best_slots_.device;
  result.pass_s = best_pass_s_;
  return result;
}

}  // namespace trash_panda::plan
