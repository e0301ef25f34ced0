#include "demotion.h"

#include "trash_panda/plan/spread_order.h"

namespace trash_panda::plan {

std::vector<std::uint64_t> demotion_order(const Plan& plan, Tier tier) {
  std::vector<std::uint64_t> members;
  for (std::size_t index = 0; index < plan.blocks.size(); ++index) {
    if (plan.blocks[index].tier == tier) {
      members.push_back(index);
    }
  }
  std::vector<std::uint64_t> order;
  for (const std::size_t at : spread_order(members.size())) {
    order.push_back(members[at]);
  }
  return order;
}

}  // namespace trash_panda::plan
