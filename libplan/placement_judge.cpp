#include "placement_judge.h"

#include <algorithm>
#include <span>

#include "steady_state.h"

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

std::optional<PlacementJudge::Totals> PlacementJudge::add_up(const TierIndexes& tiers) const {
  Totals totals;
  for (std::size_t index = 0; index < tiers.size(); ++index) {
    const TierChoice& choice = problem_.blocks[index].choices[tiers[index]];
    if (!choice.is_allowed) {
      return std::nullopt;
    }
    totals.times.busy_s[0] += choice.cost.read_s;
    totals.times.busy_s[1] += choice.cost.decode_s;
    totals.times.busy_s[2] += choice.cost.copy_s;
    totals.times.busy_s[3] += choice.cost.compute_s;
    (tiers[index] == tier_index(Tier::kGpu) ? totals.vram_bytes : totals.ram_bytes) +=
        choice.memory_bytes;
    totals.host_slot_bytes = std::max(totals.host_slot_bytes, choice.host_slot_bytes);
    totals.device_slot_bytes = std::max(totals.device_slot_bytes, choice.device_slot_bytes);
    totals.host_slot_users += choice.host_slot_bytes > 0 ? 1U : 0U;
    totals.device_slot_users += choice.device_slot_bytes > 0 ? 1U : 0U;
    totals.resident_count += tiers[index] == tier_index(Tier::kGpu) ? 1U : 0U;
  }
  if (problem_.resident_count && totals.resident_count != *problem_.resident_count) {
    return std::nullopt;
  }
  return totals;
}

double PlacementJudge::simulate(const TierIndexes& tiers, const ChannelTimes& times,
                                std::size_t host_slot_count, std::size_t device_slot_count) {
  PassState state(std::max<std::size_t>(host_slot_count, 1),
                  std::max<std::size_t>(device_slot_count, 1), problem_.has_link);
  return run_to_steady_state(state, times, [&](PassState& running) {
    ++played_passes_;
    for (std::size_t index = 0; index < tiers.size(); ++index) {
      running.step(problem_.blocks[index].choices[tiers[index]].cost);
    }
  });
}

bool PlacementJudge::consider(const TierIndexes& tiers) {
  ++played_passes_;
  const std::optional<Totals> totals = add_up(tiers);
  if (!totals || totals->vram_bytes > problem_.vram_bytes ||
      totals->ram_bytes > problem_.ram_bytes || !can_improve(totals->times)) {
    return false;
  }
  const std::optional<std::size_t> host_slot_count =
      most_slots(problem_.host_slot_counts, totals->host_slot_users, totals->host_slot_bytes,
                 problem_.ram_bytes - totals->ram_bytes);
  const std::optional<std::size_t> device_slot_count =
      most_slots(problem_.device_slot_counts, totals->device_slot_users, totals->device_slot_bytes,
                 problem_.vram_bytes - totals->vram_bytes);
  if (!host_slot_count || !device_slot_count) {
    return false;
  }
  const double pass_s = simulate(tiers, totals->times, *host_slot_count, *device_slot_count);
  if (!is_better(pass_s, totals->times)) {
    return false;
  }
  best_ = tiers;
  best_pass_s_ = std::min(pass_s, best_pass_s_);
  best_times_ = totals->times;
  best_host_slot_count_ = *host_slot_count;
  best_device_slot_count_ = *device_slot_count;
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
  result.host_slot_count = best_host_slot_count_;
  result.device_slot_count = best_device_slot_count_;
  result.pass_s = best_pass_s_;
  return result;
}

}  // namespace trash_panda::plan
