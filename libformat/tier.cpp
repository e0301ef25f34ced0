#include "trash_panda/format/tier.h"

#include <array>

namespace trash_panda::format {

namespace {

constexpr std::array<Tier, 4> kTiers = {Tier::kBase, Tier::kGpu, Tier::kRam, Tier::kDisk};

}  // namespace

std::string_view tier_name(Tier tier) {
  switch (tier) {
    case Tier::kBase:
      return "base";
    case Tier::kGpu:
      return "gpu";
    case Tier::kRam:
      return "ram";
    case Tier::kDisk:
      return "disk";
  }
  return "";
}

std::optional<Tier> parse_tier(std::string_view name) {
  for (const Tier tier : kTiers) {
    if (tier_name(tier) == name) {
      return tier;
    }
  }
  return std::nullopt;
}

}  // namespace trash_panda::format
