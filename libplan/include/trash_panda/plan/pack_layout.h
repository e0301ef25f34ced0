#pragma once

#include <cstdint>

#include "trash_panda/base/error.h"
#include "trash_panda/base/units.h"
#include "trash_panda/format/checkpoint.h"
#include "trash_panda/format/pack_writer.h"
#include "trash_panda/format/weights.h"
#include "trash_panda/plan/block_groups.h"
#include "trash_panda/plan/plan.h"

namespace trash_panda::plan {

/// A base weight of this size or more gets an extent of its own: big embeddings and heads can then
/// be moved and read one by one, while small tensors still cost one read together.
inline constexpr std::uint64_t kOwnExtentBytesMin = 16 * kMiB;

/// Name of the extent that holds the small base tensors.
inline constexpr const char* kBaseExtentName = "base";

/// Turns a plan into what write_pack() writes: base extents first, then the blocks in execution
/// order, each with the tier that the plan gives it.
///
/// A scale travels with its weight; tensors that the weight table ignores (activation scales,
/// markers) are left out. `plan_toml` is write_plan_toml(plan): a caller that read the plan from a
/// file replaces it with that text, so that comments survive. `aliases` is left empty.
///
/// @param weights  Of `checkpoint`.
/// @param blocks   Of `checkpoint`, which they index.
/// @retval kStale  The plan was made for another checkpoint: its fingerprint, its blocks or their
///                 sizes differ. The message names what differs.
Result<format::PackLayout> make_pack_layout(const Plan& plan, const format::Checkpoint& checkpoint,
                                            const format::WeightTable& weights,
                                            const BlockMap& blocks);

}  // namespace trash_panda::plan
