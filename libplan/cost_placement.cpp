#include "cost_placement.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trash_panda/plan/prediction.h"

#include "coded_size.h"
#include "left_of.h"
#include "placement_search.h"

namespace trash_panda::plan {
namespace {

/// Of passes that differ by less than this part, that with simpler forms is taken.
constexpr double kTiePart = 1e-9;

/// The form of the blocks of each tier, by kBlockTiers.
using TierForms = std::array<StorageForm, kBlockTiers.size()>;

/// Combinations worth trying, simplest first: of equal ones the first is taken.
std::vector<TierForms> list_forms(const PlacementProblem& problem) {
  using enum StorageForm;
  const auto can = [&problem](StorageForm form) {
    if (std::ranges::find(problem.forms, form) == problem.forms.end()) {
      return false;
    }
    for (std::size_t index = 0; index < problem.contents.size(); ++index) {
      if (coded_size_bytes(problem.blocks[index], problem.contents[index], form)) {
        return true;
      }
    }
    return false;
  };
  std::vector<TierForms> list = {{kRaw, kRaw, kRaw}};
  if (can(kZstd) && problem.rates.decode_bytes_per_s) {
    list.push_back({kRaw, kRaw, kZstd});
  }
  if (can(kExponent) && problem.exponent_bytes_per_s) {
    list.push_back({kRaw, kRaw, kExponent});
    list.push_back({kRaw, kExponent, kExponent});
    list.push_back({kExponent, kExponent, kExponent});
  }
  return list;
}

PlannedBlock in_tier(const PlacementProblem& problem, std::size_t index, Tier tier,
                     StorageForm form) {
  PlannedBlock placed = problem.blocks[index];
  placed.tier = tier;
  if (problem.contents.empty()) {
    return placed;
  }
  const BlockContent& content = problem.contents[index];
  if (const std::optional<std::uint64_t> coded = coded_size_bytes(placed, content, form)) {
    placed.form = form;
    placed.coded_bytes = *coded;
    placed.expand_bytes += form == StorageForm::kExponent ? content.bf16_bytes : 0;
  }
  return placed;
}

/// One search: tiers with given forms.
class FormSearch {
 public:
  FormSearch(const PlacementProblem& problem, const TierForms& forms)
      : problem_(problem), forms_(forms), rates_(problem.rates) {
    // With the rate that blocks would have if some were in each tier, which is the slowest.
    std::vector<PlannedBlock> everywhere;
    for (std::size_t index = 0; index < problem.blocks.size(); ++index) {
      for (const Tier tier : kBlockTiers) {
        if (is_allowed(index, tier)) {
          everywhere.push_back(in_tier(problem, index, tier, forms[tier_index(tier)]));
        }
      }
    }
    rates_.expand_bytes_per_s = expansion_bytes_per_s(everywhere, expand_rates());
    build();
  }

  [[nodiscard]] std::optional<SearchResult> run(const std::vector<Placement>& others,
                                                std::uint64_t passes_max) const {
    std::vector<std::vector<Tier>> candidates;
    for (const Placement& other : others) {
      std::vector<Tier>& tiers = candidates.emplace_back();
      for (const PlannedBlock& block : other.blocks) {
        tiers.push_back(block.tier);
      }
    }
    return search_placement(search_, SearchMethod::kAutomatic, candidates, passes_max);
  }

  [[nodiscard]] Placement equip(const SearchResult& result) const {
    std::vector<PlannedBlock> blocks;
    std::size_t disk_count = 0;
    for (std::size_t index = 0; index < result.tiers.size(); ++index) {
      const Tier tier = result.tiers[index];
      blocks.push_back(in_tier(problem_, index, tier, forms_[tier_index(tier)]));
      disk_count += tier == Tier::kDisk ? 1U : 0U;
    }
    // As many slots as disk blocks: the lookahead is only limited by them.
    std::uint64_t lookahead = left_of(result.host_slot_count, 1);
    if (result.host_slot_count == disk_count) {
      lookahead = problem_.lookahead_blocks.value_or(std::max(lookahead, kLookaheadBlocks));
    }
    Placement placement =
        equip_blocks(problem_, std::move(blocks), lookahead, result.device_slot_count);
    placement.rates = rates_;
    placement.rates.expand_bytes_per_s = expansion_bytes_per_s(placement.blocks, expand_rates());
    return placement;
  }

 private:
  [[nodiscard]] ExpandRates expand_rates() const {
    return {.fp8_bytes_per_s = problem_.rates.expand_bytes_per_s,
            .exponent_bytes_per_s = problem_.exponent_bytes_per_s,
            .zstd_bytes_per_s = {}};
  }

  void build() {
    const bool has_vram = problem_.vram_budget_bytes > 0;
    search_.has_link = has_vram;
    std::uint64_t expansion_bytes = problem_.expansion_bytes_max;
    for (std::size_t index = 0; index < problem_.blocks.size(); ++index) {
      SearchBlock& block = search_.blocks.emplace_back();
      for (const Tier tier : kBlockTiers) {
        const PlannedBlock placed = in_tier(problem_, index, tier, forms_[tier_index(tier)]);
        TierChoice& choice = block.choices[tier_index(tier)];
        choice.is_allowed = is_allowed(index, tier);
        choice.cost = block_cost(placed, rates_, has_vram);
        choice.memory_bytes = tier == Tier::kDisk ? 0 : placed.waiting_bytes();
        choice.host_slot_bytes = tier == Tier::kDisk ? arriving_bytes(placed) : 0;
        choice.device_slot_bytes = has_vram && tier != Tier::kGpu ? arriving_bytes(placed) : 0;
        if (placed.form == StorageForm::kExponent) {
          expansion_bytes = std::max(expansion_bytes, placed.expanded_bytes);
        }
      }
    }
    const std::uint64_t device_bytes =
        problem_.base_bytes +
        expansion_buffer_count(has_vram, problem_.blocks.size()) * expansion_bytes;
    can_hold_base_ =
        device_bytes <= (has_vram ? problem_.vram_budget_bytes : problem_.ram_budget_bytes);
    search_.vram_bytes = left_of(problem_.vram_budget_bytes, device_bytes);
    search_.ram_bytes =
        has_vram ? problem_.ram_budget_bytes : left_of(problem_.ram_budget_bytes, device_bytes);
    search_.resident_count = problem_.resident_count;
    if (problem_.lookahead_blocks) {
      search_.host_slot_counts = {1 + *problem_.lookahead_blocks};
    }
  }

  [[nodiscard]] bool is_allowed(std::size_t index, Tier tier) const {
    if (problem_.fixed[index]) {
      return *problem_.fixed[index] == tier;
    }
    return tier == Tier::kRam || (tier == Tier::kGpu && problem_.vram_budget_bytes > 0) ||
           (tier == Tier::kDisk && problem_.allow_disk && problem_.rates.disk_bytes_per_s);
  }

 public:
  [[nodiscard]] bool can_hold_base() const { return can_hold_base_; }

 private:
  const PlacementProblem& problem_;
  TierForms forms_;
  Rates rates_;
  SearchProblem search_;
  bool can_hold_base_ = true;
};

/// Whether something streams, so that there is time to be won, and all that it needs is known.
bool is_worth_searching(const PlacementProblem& problem, const Placement& simple) {
  const bool has_vram = problem.vram_budget_bytes > 0;
  const auto uses = [&simple](Tier tier) {
    return std::ranges::any_of(simple.blocks,
                               [tier](const PlannedBlock& block) { return block.tier == tier; });
  };
  const bool copies = has_vram && (uses(Tier::kRam) || uses(Tier::kDisk));
  return (copies || uses(Tier::kDisk)) && (!copies || problem.rates.link_bytes_per_s) &&
         (!uses(Tier::kDisk) || problem.rates.disk_bytes_per_s);
}

}  // namespace

std::optional<Placement> place_by_cost(const PlacementProblem& problem,
                                       const std::vector<Placement>& others) {
  if (others.empty() || !is_worth_searching(problem, others.front())) {
    return std::nullopt;
  }
  std::optional<Placement> best;
  double best_pass_s = 0;
  const std::vector<TierForms> list = list_forms(problem);
  for (const TierForms& forms : list) {
    const FormSearch search(problem, forms);
    const std::optional<SearchResult> result =
        search.can_hold_base() ? search.run(others, problem.search_passes_max / list.size())
                               : std::nullopt;
    if (result && (!best || result->pass_s < best_pass_s * (1 - kTiePart))) {
      best = search.equip(*result);
      best_pass_s = result->pass_s;
    }
  }
  return best;
}

}  // namespace trash_panda::plan
