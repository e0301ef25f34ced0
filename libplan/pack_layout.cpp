#include "trash_panda/plan/pack_layout.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trash_panda/base/printable.h"
#include "trash_panda/plan/plan_toml.h"

#include "pack_layout_tensors.h"

namespace trash_panda::plan {
namespace {

Error stale(std::string what) {
  return Error(ErrorCode::kStale, "the plan was made for another checkpoint: " + std::move(what))
      .with_hint("make a new one with `trash-panda plan`");
}

/// All blocks of all groups, in execution order.
std::vector<const Block*> list_blocks(const BlockMap& map) {
  std::vector<const Block*> blocks;
  for (const BlockGroup& group : map.groups) {
    for (const Block& block : group.blocks) {
      blocks.push_back(&block);
    }
  }
  return blocks;
}

/// The plan's blocks are the checkpoint's, in the same order.
Result<void> check_blocks(const Plan& plan, const std::vector<const Block*>& blocks) {
  if (plan.blocks.size() != blocks.size()) {
    return std::unexpected(stale(
        fmt::format("it has {} blocks, the checkpoint {}", plan.blocks.size(), blocks.size())));
  }
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    const PlannedBlock& planned = plan.blocks[index];
    if (planned.name != blocks[index]->name) {
      return std::unexpected(
          stale(fmt::format("its block {} is {}, the checkpoint's {}", index,
                            printable(planned.name), printable(blocks[index]->name))));
    }
    if (planned.stored_bytes != blocks[index]->stored_bytes) {
      return std::unexpected(stale(fmt::format("its block {} has {} bytes, the checkpoint's {}",
                                               printable(planned.name), planned.stored_bytes,
                                               blocks[index]->stored_bytes)));
    }
  }
  return {};
}

}  // namespace

Result<format::PackLayout> make_pack_layout(const Plan& plan,
                                            std::span<const format::TensorRecord> tensors,
                                            const format::WeightTable& weights,
                                            const BlockMap& blocks) {
  const std::vector<const Block*> in_order = list_blocks(blocks);
  TP_RETURN_IF_ERROR(check_blocks(plan, in_order));

  constexpr std::size_t kBase = static_cast<std::size_t>(-1);
  std::vector<std::size_t> owners(tensors.size(), kBase);
  for (std::size_t index = 0; index < in_order.size(); ++index) {
    for (const std::size_t tensor : in_order[index]->tensors) {
      TP_ASSERT(tensor < tensors.size());
      owners[tensor] = index;
    }
  }
  format::PackLayout layout;
  format::ExtentLayout small_base{kBaseExtentName, Tier::kBase, {}};
  std::vector<format::ExtentLayout> block_extents(in_order.size());
  for (std::size_t index = 0; index < in_order.size(); ++index) {
    block_extents[index].name = in_order[index]->name;
    block_extents[index].tier = plan.blocks[index].tier;
  }
  for (std::size_t index = 0; index < weights.weights.size(); ++index) {
    const format::Weight& weight = weights.weights[index];
    const std::size_t owner = owners[weight.tensor_index];
    if (owner != kBase) {
      block_extents[owner].weights.push_back(index);
    } else if (tensors[weight.tensor_index].size_bytes >= kOwnExtentBytesMin &&
               weight.name != kBaseExtentName) {
      layout.extents.push_back({std::string(weight.name), Tier::kBase, {index}});
    } else {
      small_base.weights.push_back(index);
    }
  }
  if (!small_base.weights.empty()) {
    layout.extents.push_back(std::move(small_base));
  }
  std::ranges::move(block_extents, std::back_inserter(layout.extents));
  layout.plan_toml = write_plan_toml(plan);
  return layout;
}

Result<format::PackLayout> make_pack_layout(const Plan& plan, const format::Checkpoint& checkpoint,
                                            const format::WeightTable& weights,
                                            const BlockMap& blocks) {
  if (plan.model_fingerprint != checkpoint.fingerprint()) {
    return std::unexpected(stale(
        fmt::format("its fingerprint is {}, that of {} is {}", printable(plan.model_fingerprint),
                    printable(checkpoint.path()), checkpoint.fingerprint())));
  }
  return make_pack_layout(plan, checkpoint.tensors(), weights, blocks);
}

}  // namespace trash_panda::plan
