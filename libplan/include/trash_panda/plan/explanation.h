#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trash_panda/plan/plan.h"
#include "trash_panda/plan/simulator.h"

namespace trash_panda::plan {

/// What a plan would become with one block in another tier.
struct TierMove {
  Tier tier = Tier::kRam;
  std::optional<double> pass_s;  ///< Simulated; nothing where a rate that it needs is not known.
  std::uint64_t ram_used_bytes = 0;  ///< With the slots that it then takes.
  std::uint64_t vram_used_bytes = 0;
  bool fits = false;  ///< Both stay within the plan's budgets.
};

/// Why a block waits where it does, compared with the next faster tier.
enum class TierReason {
  kAssigned,       ///< The user asked for it.
  kEdited,         ///< Changed in the plan's file by hand.
  kFastest,        ///< There is no faster tier.
  kNoRoom,         ///< It does not fit there.
  kNotFaster,      ///< It fits there, and the pass would take as long.
  kWouldBeFaster,  ///< It fits there, and the pass would be shorter.
  kNotMeasured,    ///< It fits there; what that brings is not known.
};

/// "assigned", "edited", "fastest", "no_room", "not_faster", "would_be_faster", "not_measured".
[[nodiscard]] std::string_view tier_reason_name(TierReason reason);

struct BlockExplanation {
  std::size_t index = 0;
  TierReason reason = TierReason::kFastest;
  BlockCost cost;      ///< In its tier.
  double stall_s = 0;  ///< That the pass waits for it; 0 where it is not known.
  Channel stalled_by = Channel::kCompute;
  std::vector<TierMove> moves;  ///< To each other tier that the plan has, the faster ones first.
};

/// Explains blocks of a plan by simulating it with each of them in the other tiers, one at a time,
/// everything else as it is.
///
/// @param indexes  Of blocks of the plan.
[[nodiscard]] std::vector<BlockExplanation> explain_blocks(const Plan& plan,
                                                           std::span<const std::size_t> indexes);

}  // namespace trash_panda::plan
