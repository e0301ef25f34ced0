#include "trash_panda/plan/plan.h"

namespace trash_panda::plan {

std::uint64_t Plan::stored_bytes(Tier tier) const {
  std::uint64_t total = 0;
  for (const PlannedBlock& block : blocks) {
    total += block.tier == tier ? block.stored_bytes : 0;
  }
  return total;
}

std::size_t Plan::block_count(Tier tier) const {
  std::size_t count = 0;
  for (const PlannedBlock& block : blocks) {
    count += block.tier == tier ? 1 : 0;
  }
  return count;
}

}  // namespace trash_panda::plan
