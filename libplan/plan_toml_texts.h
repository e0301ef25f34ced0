#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "trash_panda/format/tier.h"

namespace trash_panda::plan {

// Comments that the writer of plan files makes: whatever else is found in a file is the user's.

inline constexpr std::string_view kPlanRemark =
    "# Plan of trash-panda. The tier of a block may be changed by hand: gpu, ram or disk.";
inline constexpr std::string_view kRepackRemark =
    "# `trash-panda repack MODEL --plan THIS` lays the model out for it.";
inline constexpr std::string_view kRequestRemark =
    "# What was asked for: `trash-panda plan MODEL --from THIS` asks for it again.";
inline constexpr std::string_view kPlacedRemark =
    "# Tiers as planned, by first letter: --from keeps those that were changed since.";
inline constexpr std::string_view kDemotionRemark =
    "# Blocks that give up their place first when memory is short at load, by index from 0.";

inline constexpr std::array kWriterRemarks = {kPlanRemark, kRepackRemark, kRequestRemark,
                                              kPlacedRemark, kDemotionRemark};

/// The letter of a block's tier: 'g', 'r' or 'd'.
[[nodiscard]] inline char letter_of_tier(format::Tier tier) {
  return format::tier_name(tier).front();
}

[[nodiscard]] inline std::optional<format::Tier> tier_of_letter(char letter) {
  for (const format::Tier tier : {format::Tier::kGpu, format::Tier::kRam, format::Tier::kDisk}) {
    if (letter == letter_of_tier(tier)) {
      return tier;
    }
  }
  return std::nullopt;
}

}  // namespace trash_panda::plan
